"""Each exit code of the table, reached through the real process; nothing else ends a command."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from enginectl.errors import EXIT_MEANINGS, Exit
from tests.support.ctl import PACED, Ctl, Result
from tests.support.wait import wait_until

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ctl]:
    """Engine `t` serves; `gone` has run and was stopped."""
    ctl = Ctl(tmp_path_factory.mktemp("codes"), PACED_STEP_MS="10")
    try:
        ctl.start("gone")
        ctl.ok("stop", "gone")
        ctl.start("t")
        yield ctl
    finally:
        ctl.close()


def cordoned(ctl: Ctl) -> Result:
    ctl.ok("cordon", "t")
    try:
        return ctl("generate", "-e", "t", "x", "--max-tokens", "1")
    finally:
        ctl.ok("uncordon", "t")


def partly(ctl: Ctl) -> Result:
    child = ctl.generate()
    request = ctl.wait_running(1)[0]["id"]
    result = ctl("abort", "-e", "t", request, "nobody")
    child.wait(20)
    return result


def failing_start(ctl: Ctl) -> Result:
    mark = ctl.base / "fail"
    mark.touch()
    words = ["start", "bad", "--model", str(ctl.model), "--set", f"executor={PACED}"]
    return ctl(*words, PACED_FAIL_FILE=str(mark))


def died_while_waited_for(ctl: Ctl) -> Result:
    ctl.start("dies")
    child = ctl.popen("wait", "dies", "--for", "running>5")
    wait_until(lambda: ctl("probe", "dies").code == 0, 10.0, "it")
    os.kill(ctl.record("dies")["engine"]["pid"], signal.SIGKILL)
    return ended(child)


def stalled(ctl: Ctl) -> Result:
    pid = ctl.record()["engine"]["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: "stalled" in ctl("status", "t", "-p", "state").out, 20.0, "stalled")
        return ctl("status", "t", "--exit-status")
    finally:
        os.kill(pid, signal.SIGCONT)
        wait_until(lambda: ctl("probe", "t").code == 0, 20.0, "alive again")


def unreachable(ctl: Ctl) -> Result:
    """The supervisor lives, its socket is gone, and it cannot bind it again while it is stopped."""
    pid = ctl.record()["supervisor"]["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        (Path(ctl.record()["runtime_dir"]) / "control.sock").unlink()
        return ctl("requests", "t")
    finally:
        os.kill(pid, signal.SIGCONT)
        wait_until(lambda: ctl("probe", "t").code == 0, 20.0, "reachable again")


def nonsense(ctl: Ctl) -> Result:
    ctl.old_supervisor("old", "garbage")
    return ctl("requests", "old")


def signalled(number: signal.Signals) -> Callable[[Ctl], Result]:
    def run(ctl: Ctl) -> Result:
        child = ctl.popen("wait", "t", "--for", "running>5", "--timeout", "60s")
        wait_until(lambda: catches(child.pid, number), 10.0, "its handlers")
        wait_until(lambda: threads(child.pid) > 1, 10.0, "its connection")
        child.send_signal(number)
        return ended(child)

    return run


def catches(pid: int, number: signal.Signals) -> bool:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    mask = next(int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:"))
    return bool(mask >> (number - 1) & 1)


def threads(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


def ended(child: object) -> Result:
    out, err = child.communicate(timeout=30)  # type: ignore[attr-defined]
    return Result(child.returncode, out, err)  # type: ignore[attr-defined]


def runs(*words: str) -> Callable[[Ctl], Result]:
    return lambda ctl: ctl(*words)


REACHED: dict[Exit, Callable[[Ctl], Result]] = {
    Exit.OK: runs("status", "t"),
    Exit.ENGINE_ERROR: runs("call", "-e", "t", "add_lora", "null"),
    Exit.USAGE: runs("status", "--no-such-option"),
    Exit.NOT_RUNNING: runs("requests", "gone"),
    Exit.NOT_FOUND: runs("status", "nobody"),
    Exit.WRONG_STATE: cordoned,
    Exit.REFUSED: runs("kill", "t"),
    Exit.CONFLICT: runs("start", "t", "--set", "max_num_seqs=3"),
    Exit.START_FAILED: failing_start,
    Exit.ENGINE_DIED: died_while_waited_for,
    Exit.PARTIAL: partly,
    Exit.STALLED: stalled,
    Exit.UNREACHABLE: unreachable,
    Exit.DEADLINE: runs("wait", "t", "--for", "running>5", "--timeout", "300ms"),
    Exit.BUG: nonsense,
    Exit.INTERRUPTED: signalled(signal.SIGINT),
    Exit.TERMINATED: signalled(signal.SIGTERM),
}


def test_the_table_is_whole() -> None:
    assert set(REACHED) == set(Exit) == set(EXIT_MEANINGS)


@pytest.mark.parametrize("code", list(REACHED), ids=lambda code: f"{int(code)}-{code.name.lower()}")
def test_each_code_is_reached(bench: Ctl, code: Exit) -> None:
    result = REACHED[code](bench)
    assert result.code == code, f"{result.out}\n{result.err}"
    assert "Traceback" not in result.err
    if code not in (Exit.OK, Exit.PARTIAL, Exit.STALLED):  # those report on stdout
        assert "error[E" in result.err


def test_the_document_carries_the_code(bench: Ctl) -> None:
    for words in (["requests", "gone"], ["status", "nobody"], ["kill", "t"], ["wait", "--for", "redy"]):
        result = bench(*words, "-o", "json")
        assert json.loads(result.out)["exit"] == result.code
