from __future__ import annotations

import os
from pathlib import Path

import pytest

from enginectl.errors import Refused, UsageError
from enginectl.outside import outside_of, python_of
from enginectl.settings import EngineSettings, check_settings


def settings(**config: object) -> EngineSettings:
    return EngineSettings(name="t", config={"model": "/m", **config})  # type: ignore[dict-item]


def test_nothing_said_is_our_own_engine_alone() -> None:
    found = outside_of(None).apply(settings())
    assert (found.engine, found.join, found.hold, found.frontend_args) == ("enginectl", "", False, None)


def test_what_is_not_said_is_as_the_last_time() -> None:
    first = outside_of(None, join="tcp://127.0.0.1:5", hold=True, hold_limit="30s").apply(settings())
    again = outside_of(first, hold_sampled="fail").apply(settings())
    assert (again.join, again.hold, again.hold_limit_s, again.hold_sampled) == ("tcp://127.0.0.1:5", True, 30.0, "fail")


def test_another_frontend_has_no_permission_of_the_last_one() -> None:
    far = outside_of(None, join="tcp://far:5", allow_remote=True).apply(settings())
    assert outside_of(far, hold=True).apply(settings()).allow_remote
    with pytest.raises(Refused, match="tcp://other:5 leads beyond this machine"):
        check_settings(outside_of(far, join="tcp://other:5").apply(settings()))


def test_another_kind_of_engine_takes_over_no_arguments() -> None:
    first = outside_of(None, engine="vllm", hold=True, rest=["--enforce-eager"]).apply(settings())
    assert first.engine_args == ["--enforce-eager"]
    again = outside_of(first, engine="enginectl").apply(settings())
    assert again.engine_args == [] and again.hold


def test_a_command_brings_its_own_frontend() -> None:
    found = outside_of(None, rest=["vllm", "serve", "some/model", "--port", "8001", "--seed", "1"])
    assert (found.engine, found.model, found.http_port) == ("vllm", "some/model", 8001)
    assert found.engine_args == ["--seed", "1"]
    with pytest.raises(UsageError, match="its own frontend"):
        outside_of(None, join="tcp://h:1", rest=["vllm", "serve", "m"])


@pytest.mark.parametrize(
    "options",
    [{"engine": "other"}, {"hold_sampled": "maybe"}, {"rest": ["--dtype", "float32"]}, {"hold_limit": "soon"}],
)
def test_what_cannot_be(options: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        outside_of(None, **options)  # type: ignore[arg-type]


def test_settings_that_vllm_does_not_have() -> None:
    with pytest.raises(UsageError, match="kv_memory"):
        outside_of(None, engine="vllm").apply(settings(kv_memory=5))


def test_an_address_must_be_one() -> None:
    with pytest.raises(UsageError, match="no address"):
        check_settings(outside_of(None, join="localhost:5").apply(settings()))


def test_the_interpreter_beside_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("vllm", "python"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert python_of("vllm") == str(tmp_path / "python")
    assert python_of("no-such-program") != ""
