"""The libraries that this machine can build; where it cannot, tests that need one are skipped."""

from __future__ import annotations

import pytest

from engine.model.native.bindings import Library
from engine.model.native.build import levels
from tests.support.native import built, wide_pairs

BETWEEN = {f"{number} below the best": level for number, level in enumerate(levels()[1:-1], start=1)}
KINDS = ["best", *BETWEEN, "lowest", "wide pairs", "tiles"]


@pytest.fixture(scope="session", params=KINDS)
def library(request: pytest.FixtureRequest) -> Library:
    kind = {"best": levels()[0], **BETWEEN, "lowest": levels()[-1], "wide pairs": wide_pairs()}
    kind["tiles"] = wide_pairs("-DEMULATE_TILES")
    return built(kind[str(request.param)])


@pytest.fixture(scope="session")
def best_library() -> Library:
    return built(levels()[0])
