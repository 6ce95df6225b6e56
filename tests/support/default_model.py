"""The embedded default model for tests marked `model`: ENGINECTL_TEST_MODEL, or fetched and converted once."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


@cache
def default_model() -> Path:
    """Its converted directory. Cached under ENGINECTL_CACHE_DIR, else in the repository's .cache."""
    if given := os.environ.get("ENGINECTL_TEST_MODEL"):
        return Path(given)
    from engine.model.fetch import NAME, fetch

    root = Path(os.environ.get("ENGINECTL_CACHE_DIR") or REPOSITORY / ".cache" / "enginectl")
    return fetch(root / "models" / NAME, lambda record: None)
