"""What `start` says it repeats: whole settings at any width."""

from __future__ import annotations

import pytest

from enginectl.commands.start import repeated_lines

REPEATED = {"executor": "package.module:Executor", "max_num_seqs": 64, "num_gpu_blocks": 400, "kv_memory": "1GiB"}


@pytest.mark.parametrize("width", [60, 80, 200])
def test_no_setting_is_broken_in_two(width: int) -> None:
    lines = repeated_lines(REPEATED, width)
    assert max(map(len, lines)) <= width
    for key, value in REPEATED.items():
        assert any(f"{key}={value}" in line for line in lines)
    assert lines[-1].strip() == "(--set K= drops one, --model M all)"


def test_off_a_terminal_it_is_one_line() -> None:
    (line,) = repeated_lines(REPEATED, None)
    assert line.startswith("  as the last time: executor=package.module:Executor, max_num_seqs=64, ")
