"""A tiny model for all tests of the engine, and one quiet engine that tests may share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.engine_process import Running
from tests.support.tiny_model import make_tiny_model


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def shared(tiny_model: Path) -> Iterator[Running]:
    """Runs no model. Tests that share it leave it running, unpaused and without requests."""
    with Running(tiny_model, num_clients=2, executor="null", num_gpu_blocks=256, max_num_seqs=16) as running:
        yield running
