"""Any engine that speaks the v1 engine-core protocol, driven over the wire and measured: the same for every engine.

Enters: a command that starts an engine which connects to tcp://127.0.0.1:{port}. Leaves: one flat document of figures.
The engine is this process's child and is gone when the document is there, or when there is none.
usage: python -m bench.protocol [--only decode,...] [--neighbour] [--deadline S] [--log FILE] -- COMMAND...
NEIGHBOUR=1 in the environment is --neighbour: a process keeps one core busy beside every group, not only beside the
group of that name."""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bench.facts import note, print_result
from bench.groups import GROUPS, NEIGHBOUR, Figures, Load
from bench.session import machine_busy_s, parse_stat
from bench.signals import ended_by_signals
from bench.wire import RunFailed, Wire

STOP_PATIENCE_S = 30.0
SPIN = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    for _ in range(1_000_000): pass\n"


class Shares:
    """CPU of this process, and of whoever has nothing to do with the run, in cores, since the object was made."""

    def __init__(self, wire: Wire, neighbour: subprocess.Popen[bytes] | None) -> None:
        self._wire, self._neighbour = wire, neighbour
        self._began = self._read()

    def _read(self) -> tuple[float, float, float]:
        own = time.process_time()
        assert self._wire.session is not None
        ours = own + self._wire.session.cpu_s()
        if self._neighbour is not None:
            ours += parse_stat(Path(f"/proc/{self._neighbour.pid}/stat").read_text()).cpu_s
        return time.perf_counter(), own, machine_busy_s() - ours

    def frontend_and_others(self) -> tuple[float, float]:
        (began, own_before, others_before), (now, own, others) = self._began, self._read()
        return (own - own_before) / (now - began), max(0.0, (others - others_before) / (now - began))


@contextlib.contextmanager
def neighbour(wanted: bool) -> Iterator[subprocess.Popen[bytes] | None]:
    """A process that keeps one core busy, and ends with this one whatever happens to it."""
    if not wanted:
        yield None
        return
    process = subprocess.Popen([sys.executable, "-c", SPIN])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def measure(
    command: Sequence[str],
    environment: Mapping[str, str],
    groups: Sequence[str],
    log_path: Path,
    *,
    with_neighbour: bool = False,
    deadline_s: float = 1200.0,
    load: Load | None = None,
) -> dict[str, object]:
    """One engine from its spawn to its end. Raises RunFailed; then too nothing is left of it.

    Memory is that after the last of the groups that are quiet: what a neighbour's beside adds is no part of it."""
    load = load or Load()
    with Wire(command, environment, log_path, deadline_s) as wire:
        hello_s, ready_s = wire.start()
        note(f"  ready after {ready_s:.1f} s")
        figures: Figures = {"hello_s": hello_s, "ready_s": ready_s}
        frontend: Figures = {}
        others: Figures = {}
        for group in groups:
            began = time.perf_counter()
            with neighbour(with_neighbour or group == NEIGHBOUR) as beside:
                shares = Shares(wire, beside)
                wire.forget()
                figures |= GROUPS[group](wire, load)
                frontend[group], others[group] = (round(share, 3) for share in shares.frontend_and_others())
            note(f"  {group}: {time.perf_counter() - began:.0f} s, the frontend took {frontend[group]:.0%} of a core")
            assert wire.session is not None
            if group != NEIGHBOUR or "rss_mb" not in figures:
                figures["rss_mb"] = wire.session.rss_bytes() / 1e6
        assert wire.session is not None
        figures["most_tokens_an_output"] = wire.most_tokens_an_output
        stop_s = wire.session.stop(STOP_PATIENCE_S)
        figures["stop_s"] = STOP_PATIENCE_S if stop_s is None else stop_s
        rounded: dict[str, object] = {name: round(value, 3) for name, value in figures.items()}
        return {**rounded, "frontend_cores": frontend, "others_cores": others, "ready": wire.ready}


def chosen(text: str | None, known: Sequence[str]) -> list[str]:
    """The names of a comma list, in the order they are known. Raises SystemExit."""
    names = set(known if text is None else text.split(","))
    if names - set(known):
        raise SystemExit(f"unknown: {', '.join(sorted(names - set(known)))}; known: {', '.join(known)}")
    return [name for name in known if name in names]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help=f"of {','.join(GROUPS)}")
    parser.add_argument("--neighbour", action="store_true", default=bool(os.environ.get("NEIGHBOUR")))
    parser.add_argument("--deadline", type=float, default=1200.0, help="seconds for the whole run")
    parser.add_argument("--log", type=Path, help="where the engine's output goes")
    parser.add_argument("command", nargs="+", help="{port} in it becomes the port that the engine is to connect to")
    given = parser.parse_args()
    log = given.log or Path(tempfile.mkstemp(prefix="bench-protocol-", suffix=".log")[1])
    groups = chosen(given.only, list(GROUPS))
    try:
        with ended_by_signals():
            result = measure(given.command, os.environ, groups, log,
                             with_neighbour=given.neighbour, deadline_s=given.deadline)  # fmt: skip
    except RunFailed as error:
        raise SystemExit(str(error)) from None
    given.log = str(log)
    print_result("protocol", given, result)


if __name__ == "__main__":
    main()
