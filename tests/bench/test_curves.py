"""What scaling, overlap and soak make of what they measured; and one short run of each that needs no large model."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import pytest

from bench import scaling, soak, start
from bench.overlap import summarise as overlap_of
from bench.overlap import within
from tests.support.tiny_model import make_tiny_model


def test_where_a_curve_bends() -> None:
    running = {str(size): {"tok_s": rate} for size, rate in ((1, 10.0), (2, 19.0), (4, 30.0), (8, 36.0))}
    assert scaling.bend_of_running(running) == 4
    assert scaling.bend_of_running({"1": {"tok_s": 10.0}, "2": {"tok_s": 20.0}}) is None
    context = {str(size): {"step_ms": step} for size, step in ((64, 10.0), (1000, 12.0), (2000, 13.0))}
    assert scaling.bend_of_context(context) == 2000
    prompts = {"16": {"prefill_tok_s": 10.0}, "64": {"prefill_tok_s": 30.0}, "256": {"prefill_tok_s": 20.0}}
    found = scaling.result({"running": running, "context": context, "prompt": prompts})
    assert found["prompt_fastest_at"] == 64
    assert found["tok_s_per_one_request"] == {"1": 1.0, "2": 1.9, "4": 3.0, "8": 3.6}


def test_what_is_hidden_lies_within() -> None:
    computing = [(0.0, 10.0), (11.0, 20.0)]
    assert within([(1.0, 2.0), (9.5, 11.5), (20.0, 25.0)], computing) == pytest.approx(2.0)
    found = overlap_of({"computing": computing, "io": [(9.0, 11.0), (2.0, 4.0)]}, 200)
    assert found["hidden_share"] == 0.75 and found["steps"] == 2 and found["bytes_per_step"] == 100
    assert found["io_ms_per_step"] == 2000.0 and found["exposed_ms_per_step"] == 500.0


def test_pauses_of_the_collector(tmp_path: Path) -> None:
    path = tmp_path / "gc.json"
    path.write_text(json.dumps([[0, 1.0, 0.5], [2, 7.0, 2.0]]))
    found = soak.pauses(path)
    assert (found["collections"], found["longest_ms"], found["longest_cpu_ms"], found["over_5_ms"]) == (2, 7.0, 2.0, 1)
    assert found["by_generation"] == {"0": 1, "1": 0, "2": 1}


def run(main: object, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> object:
    monkeypatch.setattr(sys, "argv", ["bench", *words])
    assert callable(main)
    main()
    return json.loads(capsys.readouterr().out)["result"]


@pytest.mark.e2e
def test_short_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    model = str(make_tiny_model(tmp_path / "m"))
    monkeypatch.setenv("BENCH_GC_FILE", "")
    found = run(soak.main, capsys, monkeypatch, model, "--requests", "200", "--running", "8")
    assert isinstance(found, dict) and len(found["tenths"]) == 10 and found["tenths"][9]["rss_mib"] > 1
    sizes = ("--running", "1,2", "--context", "8,16", "--prompt", "8,16", "--tokens", "600", "--prompt-rounds", "1")
    found = run(scaling.main, capsys, monkeypatch, model, "--executor", "null", *sizes)
    assert isinstance(found, dict) and found["running"]["2"]["tok_s"] > 0 and found["context"]["16"]["step_ms"] > 0
    given = argparse.Namespace(model=model, executor="null", dtype="auto", threads=None, length=8, tokens=4)
    assert start.one_round(given, 0)["start_s"] > 0
