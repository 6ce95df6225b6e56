"""The check of a loaded library: passes what counts rightly, refuses what does not, in both types."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from engine.model.native import build
from engine.model.native.bindings import Library
from engine.model.native.build import Level, levels
from engine.model.native.check import CheckFailed, check_library
from tests.support.native import built

pytestmark = pytest.mark.thread

STORAGE = [torch.float32, torch.bfloat16]


@pytest.mark.parametrize("bits", [0, 8, 4])
@pytest.mark.parametrize("storage", STORAGE)
def test_a_right_library_passes_and_the_random_state_stays(library: Library, storage: torch.dtype, bits: int) -> None:
    before = torch.random.get_rng_state()
    check_library(library, storage, bits=bits)
    assert torch.equal(torch.random.get_rng_state(), before)


FAULTS = {
    "norm": ("pieces.h", "sqrtf(", "fabsf("),
    "mask": ("attention.h", "visible + (first + r) / share", "visible + 1 + (first + r) / share"),
    "scale": ("attention.h", "l->scale", "l->scale * 0.5f"),
    "slot": ("model.c", "% l->block_size) * dim +", "% (l->block_size - 1)) * dim +"),
    "gate": ("product.h", "exp_v(-g)", "exp_v(g)"),
    "rest of a row": ("pieces.h", "for (; i < size; i++) rest += x[i] * x[i];", ""),
    "share": ("sampling.h", "share * cut.sum", "share * total"),
    "equals": ("sampling.h", "equals-- > 0", "equals++ > 0"),
    "least": ("sampling.h", "/ count * SAFELY", "* SAFELY"),
    "temperature": ("sampling.h", "1.0f / temperature", "temperature"),
    "min_p": ("sampling.h", "weight < least", "weight < 0"),
    "best": ("product.h", "while (from[i] != top) i++;", ""),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_library_that_counts_wrongly_is_refused(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources with one thing changed."""
    name, right, wrong = FAULTS[fault]
    sources = tmp_path / "src"
    shutil.copytree(build.SOURCES, sources)
    text = (sources / name).read_text()
    assert right in text
    (sources / name).write_text(text.replace(right, wrong))
    monkeypatch.setattr(build, "SOURCES", sources)
    monkeypatch.setenv(build.DIRECTORY_SETTING, str(tmp_path / "native"))
    library = built(Level((*levels()[0].flags, "-O1"), frozenset()))
    for storage in STORAGE:
        with pytest.raises(CheckFailed):
            check_library(library, storage)
