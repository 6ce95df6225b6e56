from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench.loop import as_result, measure, null_arms
from tests.support.tiny_model import make_tiny_model


def test_the_peer_is_named_its_empty_executor() -> None:
    _, peer = null_arms("/m", "/v/bin/python")
    place = peer.command.index("--distributed-executor-backend")
    module, _, name = peer.command[place + 1].rpartition(".")
    source = Path(peer.environment["PYTHONPATH"]) / f"{module}.py"
    assert f"class {name}(" in source.read_text()


def test_without_a_peer_there_is_our_arm_alone() -> None:
    assert [arm.name for arm in null_arms("/m", None)] == ["ours"]


def test_the_ratio_is_ours_to_theirs() -> None:
    found = {"ours": {"1": {"tok_s": 300.0}}, "peer": {"1": {"tok_s": 120.0}}}
    assert as_result(found) == {"1": {"tok_s": 300.0}, "peer": {"1": {"tok_s": 120.0}}, "ratio": {"1": 2.5}}
    assert as_result({"ours": found["ours"]}) == found["ours"]


@pytest.mark.e2e
def test_our_loop_gives_its_tokens(tmp_path: Path) -> None:
    make_tiny_model(tmp_path / "m")
    found = measure(null_arms(str(tmp_path / "m"), None), 2, [(1, 20), (8, 5)], tmp_path, 60.0, os.environ)
    assert found["ours"].keys() == {"1", "8"}
    assert all(figures["tok_s"] > 0 for figures in found["ours"].values())
