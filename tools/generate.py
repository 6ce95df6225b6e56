"""`python -m tools.generate [--check]`: writes what is generated, or says what is stale and ends with 1.

Owns completions/, man/*.N and docs/errors.md of this checkout."""

from __future__ import annotations

import sys
from pathlib import Path

from enginectl.completion import FILE_NAMES, render
from enginectl.tree import command_tree
from tools import errors_page, man

ROOT = Path(__file__).resolve().parent.parent


def generated() -> dict[str, str]:
    """Path below the checkout -> what has to be in it."""
    files = {f"completions/{file}": render(shell) for shell, file in FILE_NAMES.items()}
    files |= {f"man/{name}": text for name, text in man.pages(ROOT / "man" / "src", command_tree()).items()}
    files["docs/errors.md"] = errors_page.render()
    return files


def stale(files: dict[str, str]) -> list[str]:
    """Paths whose file is missing, says something else, or is left over."""
    wrong = [path for path, text in files.items() if not _says(ROOT / path, text)]
    there = [*(ROOT / "man").glob("*.[0-9]"), *(path for path in (ROOT / "completions").iterdir() if path.is_file())]
    return wrong + [name for path in there if (name := str(path.relative_to(ROOT))) not in files]


def _says(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


def main(argv: list[str]) -> int:
    files = generated()
    wrong = stale(files)
    if argv == ["--check"]:
        for path in wrong:
            print(f"stale: {path} (make docs)", file=sys.stderr)
        return int(bool(wrong))
    for path in wrong:
        if path in files:
            (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / path).write_text(files[path], encoding="utf-8")
        else:
            (ROOT / path).unlink()
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
