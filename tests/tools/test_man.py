"""The pages as the programs that read them see them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from enginectl.tree import command_tree
from tools.generate import ROOT
from tools.man import page, read_source

PAGES = sorted((ROOT / "man").glob("*.[0-9]"))


@pytest.mark.parametrize("command", [["groff", "-ww", "-man", "-Tascii"], ["mandoc", "-T", "lint", "-W", "style"]])
def test_nothing_is_found_wrong(command: list[str]) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"no {command[0]} on this machine")
    assert len(PAGES) == 13
    for path in PAGES:
        done = subprocess.run([*command, str(path)], capture_output=True, text=True, timeout=30, check=False)
        said = done.stderr + (done.stdout if command[0] == "mandoc" else "")
        assert (done.returncode, said) == (0, ""), path.name


def test_a_rendered_page_reads_as_it_was_written() -> None:
    if shutil.which("groff") is None:
        pytest.skip("no groff on this machine")
    argv = ["groff", "-man", "-Tascii", "-P-c", "-P-u", "-P-b", str(ROOT / "man" / "enginectl-wait.1")]
    shown = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True).stdout
    assert "enginectl wait [OPTION ...] [NAME]" in shown
    assert "enginectl wait --for idle --for 'kv<0.2'" in shown
    assert "--timeout DURATION" in shown


def test_an_unknown_mark_and_a_missing_head_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.md"
    path.write_text("name: x\nsection: 1\nsummary: y\ndate: 2026-01-01\nsee: enginectl(1)\n\n# A\n\n{{nothing}}\n")
    with pytest.raises(ValueError, match="nothing"):
        page(read_source(path), command_tree()[:1])
    path.write_text("name: x\n\n# A\n")
    with pytest.raises(ValueError, match="date, section, see, summary"):
        read_source(path)
