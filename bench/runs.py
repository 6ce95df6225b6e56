"""The single runs of a comparison, each kept in a file of its own, so that a sitting can be taken up again.

Enters: what is to be measured. Leaves: a document for each run, in the order of the plan. A run that failed leaves its
log and no document: the next sitting tries it again. Owned by bench.peers."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.arms import Arm
from bench.facts import machine, note
from bench.groups import Load
from bench.protocol import measure
from bench.table import medians
from bench.wire import RunFailed

Document = dict[str, Any]

READ_BYTES = 1 << 20


class OtherSitting(Exception):
    """What is kept in the folder was measured otherwise: it cannot stand beside the rest."""


@dataclass(frozen=True)
class Run:
    arm: Arm
    round_: int
    groups: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"round{self.round_}-{self.arm.name}"


def plan(arms: Sequence[Arm], rounds: int, groups: Sequence[str]) -> list[Run]:
    """All arms in turn, round by round: a machine that drifts does so for all of them."""
    return [Run(arm, round_, tuple(groups)) for round_ in range(1, rounds + 1) for arm in arms]


def kept(run: Run, directory: Path, machine_now: Mapping[str, object]) -> Document | None:
    """The document of a run made before, if it holds all that is asked. Raises OtherSitting."""
    file = directory / f"{run.name}.json"
    if not file.exists():
        return None
    document: Document = json.loads(file.read_text())
    expected = {"command": run.arm.in_words(), "cpu": machine_now["cpu"], "cores": machine_now["cores"]}
    found = {"command": document["command"], "cpu": document["machine"]["cpu"], "cores": document["machine"]["cores"]}
    for name, value in expected.items():
        if found[name] != value:
            raise OtherSitting(f"{file} has another {name}: {found[name]}\n  now: {value}\n  take another --out")
    return document if set(run.groups) <= set(document["groups"]) else None


def read_through(places: Sequence[Path]) -> int:
    """Reads files, and those in folders, so that the kernel has them in memory. Returns the bytes; what cannot be read
    counts as nothing, for whoever needs it will say so."""
    total = 0
    files = [file for place in places for file in (place.rglob("*") if place.is_dir() else [place])]
    for file in files:
        try:
            with file.open("rb", buffering=0) as opened:
                while read := len(opened.read(READ_BYTES) or b""):
                    total += read
        except OSError:
            continue
    return total


def execute(run: Run, directory: Path, deadline_s: float, load: Load | None) -> Document:
    """Raises RunFailed. The files of a start are read before: the runs of another arm may have taken their place in
    memory, and a disk is not what is compared."""
    began = time.time()
    note(f"  {read_through(run.arm.files) / 1e9:.1f} GB of files read")
    document: Document = {"arm": run.arm.name, "round": run.round_,
                          "groups": list(run.groups), "command": run.arm.in_words(), "machine": machine(),
                          "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began))}  # fmt: skip
    document["result"] = measure(run.arm.command, run.arm.full_environment(os.environ), run.groups,
                                 directory / f"{run.name}.log", deadline_s=deadline_s, load=load)  # fmt: skip
    document["took_s"] = round(time.time() - began, 1)
    whole = directory / f"{run.name}.json.new"
    whole.write_text(json.dumps(document, indent=1))
    whole.rename(directory / f"{run.name}.json")
    return document


def execute_all(runs: Sequence[Run], directory: Path, deadline_s: float, load: Load | None) -> Iterator[Document]:
    """In order, those that failed left out; tells how far it is. Raises OtherSitting before anything is started."""
    now = machine()
    done = {run.name: document for run in runs if (document := kept(run, directory, now)) is not None}
    estimate = Estimate([*done.values()])
    for place, run in enumerate(runs):
        if run.name in done:
            note(f"[{place + 1}/{len(runs)}] {run.name}: kept from {done[run.name]['at']}")
            yield done[run.name]
            continue
        left = estimate.left_s([later for later in runs[place:] if later.name not in done])
        note(f"[{place + 1}/{len(runs)}] {run.name}" + (f", about {left / 60:.0f} min to go" if left else ""))
        try:
            document = execute(run, directory, deadline_s, load)
        except RunFailed as error:
            note(f"  FAILED: {error}")
            continue
        note(f"  {document['took_s']:.0f} s")
        estimate.documents.append(document)
        yield document


@dataclass
class Estimate:
    """How long what is left may take, by what the same took before."""

    documents: list[Document]

    def left_s(self, runs: Sequence[Run]) -> float | None:
        """None: nothing is known yet."""
        known: dict[str, float] = {document["arm"]: document["took_s"] for document in self.documents}
        if not known:
            return None
        usual = sum(known.values()) / len(known)
        return sum(known.get(run.arm.name, usual) for run in runs)


def by_arm(
    documents: Sequence[Document], value: Callable[[Document], Mapping[str, object]]
) -> dict[str, dict[str, float]]:
    """Medians over the rounds."""
    groups: dict[str, list[Mapping[str, object]]] = {}
    for document in documents:
        groups.setdefault(document["arm"], []).append(value(document))
    return {arm: medians(found) for arm, found in groups.items()}
