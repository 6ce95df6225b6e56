"""Where models are kept on this machine, and which there are. Imports neither torch nor numpy.

`python -m engine.model.store [ROOT]` prints one JSON line a model: name, path, size in bytes, dtype."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from msgspec import Struct

from engine.errors import ModelError
from engine.model.config import ModelConfig

CACHE_SETTING = "ENGINECTL_CACHE_DIR"


class StoredModel(Struct, frozen=True, kw_only=True):
    name: str
    path: str
    size: int
    """Bytes of all files in the directory."""
    dtype: str
    architecture: str = ""
    problem: str = ""
    """Why it cannot be loaded; empty when it can."""


def models_root() -> Path:
    """ENGINECTL_CACHE_DIR/models, or in the user's cache directory; not created here. A user without a home has one in
    /tmp, where `enginectl` looks for it too."""
    if given := os.environ.get(CACHE_SETTING):
        return Path(given).absolute() / "models"
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    root = Path(base) / "enginectl"
    return (root if root.is_absolute() else Path(f"/tmp/enginectl-{os.geteuid()}/cache")) / "models"


def list_models(root: Path | None = None) -> list[StoredModel]:
    """By name. What is unfinished has a name with a leading dot and is left out."""
    root = root or models_root()
    if not root.is_dir():
        return []
    found = [entry for entry in sorted(root.iterdir()) if entry.is_dir() and not entry.name.startswith(".")]
    return [_describe(entry) for entry in found]


def _describe(directory: Path) -> StoredModel:
    size = sum(file.stat().st_size for file in directory.iterdir() if file.is_file())
    try:
        config = ModelConfig.from_dir(directory)
    except ModelError as error:
        return StoredModel(name=directory.name, path=str(directory), size=size, dtype="", problem=str(error))
    return StoredModel(
        name=directory.name, path=str(directory), size=size, dtype=config.dtype, architecture=config.architecture
    )


def main(argv: list[str]) -> int:
    for model in list_models(Path(argv[0]) if argv else None):
        print(json.dumps({key: getattr(model, key) for key in model.__struct_fields__}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
