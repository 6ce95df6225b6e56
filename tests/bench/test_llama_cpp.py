"""The comparison with llama.cpp, with a stand-in for it."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from bench.llama_cpp import PEER, SCRIPT, compare, peer_round
from bench.wire import RunFailed
from tests.support.tiny_model import make_tiny_model


def stand_in(directory: Path, script: str) -> str:
    file = directory / "python"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return str(file)


def test_the_peer_is_given_its_script_file_and_threads(tmp_path: Path) -> None:
    python = stand_in(tmp_path, f'echo "$@" > {tmp_path}/said; echo "[12.5]"')
    assert peer_round(python, "m.gguf", 2, 10.0) == 12.5
    said = (tmp_path / "said").read_text().split()
    assert said[:4] == [str(SCRIPT), "m.gguf", "2", "1"]
    assert SCRIPT.exists()


def test_what_the_peer_says_last_is_the_error(tmp_path: Path) -> None:
    python = stand_in(tmp_path, "echo no such file >&2; exit 1")
    with pytest.raises(RunFailed, match=r"llama\.cpp: no such file"):
        peer_round(python, "m.gguf", 1, 10.0)
    with pytest.raises(RunFailed, match="No such file"):
        peer_round(str(tmp_path / "absent"), "m.gguf", 1, 10.0)


@pytest.mark.e2e
def test_the_ratio_is_that_of_the_best_rounds(tmp_path: Path) -> None:
    make_tiny_model(tmp_path / "m")
    given = argparse.Namespace(
        model=str(tmp_path / "m"), gguf="m.gguf", peer_python=stand_in(tmp_path, 'echo "[0.5]"'), modes="int4,none",
        rounds=2, threads=None, deadline=60.0,
    )  # fmt: skip
    found = compare(given, tmp_path, ["--executor", "null"])
    rates, ratio = found["tok_s"], found["ratio"]
    assert isinstance(rates, dict) and isinstance(ratio, dict)
    assert rates[PEER] == 0.5 and rates.keys() == {"int4", "none", PEER}
    assert ratio["int4"] == pytest.approx(rates["int4"] / 0.5, abs=0.01)
