"""A whole comparison, with a stand-in for the peer: what is kept, taken up again, left out and written."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from bench import arms as known_arms
from bench.arms import Arm
from bench.peers import NoKernels, as_json, compare, missing, warm, without_paths
from bench.report import asked as asked_of
from bench.report import weights
from bench.runs import READ_BYTES, OtherSitting, plan, read_through
from bench.table import ROWS, Line
from tests.bench.rig import TINY, Venv, asked
from tests.support.tiny_model import make_tiny_model

A, B = Arm("ours", "ours", ("a",)), Arm("b", "b", ("b",))


def test_all_arms_take_turns_round_by_round() -> None:
    assert [run.name for run in plan([A, B], 2, ["decode", "neighbour"])] == [
        "round1-ours", "round1-b", "round2-ours", "round2-b",
    ]  # fmt: skip


def test_only_what_is_asked_is_planned() -> None:
    assert [run.groups for run in plan([A], 1, ["calls", "decode"])] == [("calls", "decode")]


def test_a_table_is_whole_with_every_figure_of_three_rounds() -> None:
    whole = [Line(row, 1.0, (1.0,)) for row in ROWS]
    assert missing(whole, [{}] * 6, 6, 3) is None
    assert missing(whole, [{}] * 2, 2, 1) == "1 of at least 3 rounds"
    assert missing(whole, [{}] * 5, 6, 3) == "1 of 6 runs failed"
    part = [Line(ROWS[0], float("nan"), (1.0,)), *whole[1:]]
    assert missing(part, [{}] * 6, 6, 3) == f"no figures of {ROWS[0].title}"


def test_no_figure_is_null_in_the_document() -> None:
    line = as_json(Line(ROWS[0], 2.0, (float("nan"),)))
    assert (line["ours"], line["peer_0"], line["ratio"], line["holds"]) == (2.0, None, None, None)


@pytest.mark.parametrize(
    ("dtype", "option", "words"),
    [
        ("bfloat16", "", "bfloat16 weights"),
        ("float32", " --peer-dtype float32", "bfloat16 weights for ours and float32"),
    ],
)
def test_the_page_says_when_the_peer_had_another_type(dtype: str, option: str, words: str) -> None:
    facts = {"settings": {"peer_dtype": dtype}}
    assert asked_of(facts) == option
    assert weights(facts).startswith(words)


def test_files_of_a_start_are_read_whole_and_what_cannot_be_read_is_left(tmp_path: Path) -> None:
    (tmp_path / "lib" / "deep").mkdir(parents=True)
    (tmp_path / "lib" / "deep" / "long.so").write_bytes(bytes(READ_BYTES + 5))
    (tmp_path / "lib" / "short.py").write_bytes(b"1234567")
    (tmp_path / "lib" / "gone").symlink_to(tmp_path / "nowhere")
    (tmp_path / "model").write_bytes(b"123")
    places = tmp_path / "lib", tmp_path / "model", tmp_path / "no such place"
    assert read_through(places) == READ_BYTES + 5 + 7 + 3


def test_paths_of_this_machine_become_words() -> None:
    assert without_paths("/a/b/c /a/d", {"/a": ".", "/a/b": "B"}) == "B/c ./d"


@pytest.mark.thread
def test_ours_is_not_measured_without_its_kernels_unasked(tmp_path: Path) -> None:
    script = "import sys; print('cannot', *sys.argv[1:]); sys.exit(1)"
    with pytest.raises(NoKernels, match=r"(?s)no compiled kernels: cannot --kernels native.*--kernels eager"):
        warm(Arm("ours", "ours", (sys.executable, "-c", script)), tmp_path)


@pytest.fixture
def venv(tmp_path: Path) -> Venv:
    return Venv(tmp_path)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    make_tiny_model(tmp_path / "m")
    return tmp_path / "m"


def arms_of(venv: Venv, model: Path, *more: str) -> list[Arm]:
    return [known_arms.ours(str(model), ["--executor", "null", *more]),
            known_arms.peer_default(str(venv.python), str(model)),
            known_arms.peer_best(str(venv.python), str(model), cores=[0, 1])]  # fmt: skip


@pytest.mark.e2e
def test_a_comparison_is_written_kept_and_taken_up_again(
    tmp_path: Path, venv: Venv, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given, arms = asked(tmp_path, model, venv), arms_of(venv, model)
    assert compare(given, arms, TINY)
    assert venv.starts() == [" ", f"{venv.library} 0-1"]
    said = capsys.readouterr()
    facts = json.loads(said.out)
    assert "about" in said.err and "[3/3] round1-vllm-best" in said.err
    assert facts["result"]["versions"]["vllm"] == "0.0.1"
    page = (tmp_path / "out" / "RESULTS.md").read_text()
    assert re.search(
        r"\| decode, 8 running, tokens/s, one core kept busy \| [\d,.]+ \| [\d,.]+ \| [\d,.]+ \| [\d,.]+ \|", page
    )
    assert "| decode, 8 running, tokens/s | - | - | - | - | >= 1.4 x | - |" in page
    assert str(tmp_path) not in page and str(tmp_path) not in said.out
    assert not given.results.exists()

    (tmp_path / "out" / "round1-vllm-default.json").unlink()
    assert compare(given, arms, TINY)
    assert len(venv.starts()) == 3
    with pytest.raises(OtherSitting, match="another command"):
        compare(given, arms_of(venv, model, "--threads", "1"), TINY)


@pytest.mark.e2e
def test_a_failed_run_leaves_a_gap_and_is_tried_again(
    tmp_path: Path, venv: Venv, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given, arms = asked(tmp_path, model, venv, only="calls"), arms_of(venv, model)[:2]
    venv.broken.touch()
    assert not compare(given, arms, TINY)
    assert "FAILED: the engine ended with status 3" in capsys.readouterr().err
    assert "| call, idle, p50, ms | 0." in (tmp_path / "out" / "RESULTS.md").read_text()
    venv.broken.unlink()
    assert compare(given, arms, TINY)
    assert "round1-ours: kept" in capsys.readouterr().err
