"""A supervisor that has joined a bare frontend: `joined(rig, frontend)` gives its control connection once it serves."""

from __future__ import annotations

from enginectl.client import Engine, connect
from enginectl.settings import EngineSettings
from tests.support.frontend import RawFrontend
from tests.support.rig import Rig


def joined(rig: Rig, frontend: RawFrontend, name: str = "t", hold: bool = False, **options: object) -> Engine:
    """Ready at both ends."""
    settings = join_settings(rig, frontend.handshake_address, name, **options)
    settings.hold = hold
    rig.launch(settings)
    engine = connect(name)
    frontend.wait_ready(60.0)
    rig.await_ready(engine)
    return engine


def join_settings(rig: Rig, address: str, name: str = "t", **options: object) -> EngineSettings:
    settings = rig.settings(name, **options)  # type: ignore[arg-type]
    settings.join = address
    return settings
