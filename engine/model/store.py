"""Where models are kept on this machine, and which there are. Imports neither torch nor numpy. In /tmp, where a user
without a home keeps them, it makes the directories that others must not have made.

`python -m engine.model.store [ROOT]` prints one JSON line a model: name, path, size in bytes, dtype."""

from __future__ import annotations

import errno
import json
import os
import pwd
import stat
import sys
from pathlib import Path

from msgspec import Struct

from engine.errors import ModelError
from engine.model.config import ModelConfig

CACHE_SETTING = "ENGINECTL_CACHE_DIR"
SHARED = Path("/tmp")
"""Where anybody may make directories."""


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
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base).absolute() / "enginectl" / "models"
    home = _home()
    return (home / ".cache" / "enginectl" if home else _shared_root() / "cache") / "models"


def _home() -> Path | None:
    """HOME, else what the system says. One that is / or is not there is none, as for `enginectl`."""
    candidates = [os.environ.get("HOME")]
    try:
        candidates.append(pwd.getpwuid(os.geteuid()).pw_dir)
    except KeyError:
        pass
    return next((Path(text) for text in candidates if text and text != "/" and Path(text).is_dir()), None)


def _shared_root() -> Path:
    return SHARED / f"enginectl-{os.geteuid()}"


def shared_parents(directory: Path) -> list[Path]:
    """Its parents that another user could have made first, from the outermost on; none outside the cache of a user
    without a home."""
    root = _shared_root()
    return [parent for parent in reversed(directory.parents) if parent == root or root in parent.parents]


def make_shared_parents(directory: Path) -> None:
    """One by one, as the umask decides of those that mkdir makes on its way. Raises OSError, also for one that others
    may write to."""
    for parent in shared_parents(directory):
        parent.mkdir(mode=0o700, exist_ok=True)
        if not is_own(parent, 0o022):
            raise PermissionError(errno.EPERM, f"others may write to {parent}", str(parent))


def is_own(directory: Path, forbidden: int) -> bool:
    """Whether it is a directory, no link, of this user and without those rights. Raises OSError."""
    info = directory.lstat()
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid() and not info.st_mode & forbidden


def list_models(root: Path | None = None) -> list[StoredModel]:
    """By name. What is unfinished has a name with a leading dot and is left out."""
    root = root or models_root()
    if not root.is_dir():
        return []
    found = [entry for entry in sorted(root.iterdir()) if entry.is_dir() and not entry.name.startswith(".")]
    return [_describe(entry) for entry in found]


def _describe(directory: Path) -> StoredModel:
    size = 0
    try:
        size = sum(file.stat().st_size for file in directory.iterdir() if file.is_file())
        config = ModelConfig.from_dir(directory)
    except (ModelError, OSError) as error:
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
