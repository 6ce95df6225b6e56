"""`enginectl model`: models that are ready to use; fetching and converting them in the engine's interpreter."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from enginectl import text
from enginectl.asking import find_python
from enginectl.commands.start import PythonOption
from enginectl.errors import UsageError
from enginectl.group import ChildGroup, VerbCommand
from enginectl.models import (
    DEFAULT_MODEL,
    DEFAULT_NAMES,
    ModelUnusable,
    cached_models,
    check_directory,
    converted,
    default_model,
    models_root,
    run_tool,
)
from enginectl.options import Format, OutputOption
from enginectl.output import out

EXAMPLES = ("enginectl model ls", "enginectl model convert ~/Downloads/tiny.gguf")
CHILD_EXAMPLES = {
    "ls": ("enginectl model ls", "enginectl model ls -o json"),
    "fetch": ("enginectl model fetch", "enginectl model fetch smollm2-135m-instruct -o json"),
    "convert": (
        "enginectl model convert ~/Downloads/tiny.gguf",
        "enginectl model convert tiny.gguf ./tiny --dtype float32",
    ),
}
app = typer.Typer(
    cls=ChildGroup,
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="List, fetch and convert models.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _python(given: str | None) -> str:
    import os

    chosen = given or os.environ.get("ENGINECTL_PYTHON")
    return find_python(chosen) if chosen else sys.executable


@app.command("ls", cls=VerbCommand)
def ls(output: OutputOption = Format.text) -> None:
    """List the models in the cache. Any directory or .gguf file works too, as `start NAME --model PATH`."""
    found = cached_models()
    sizes = {path: sum(file.stat().st_size for file in path.iterdir() if file.is_file()) for path in found}
    out.document(
        "ModelList",
        {
            "items": [
                {"name": path.name, "path": str(path), "bytes": sizes[path], "default": path.name == DEFAULT_MODEL}
                for path in found
            ]
        },
    )
    rows = [[path.name, text.size(sizes[path]), str(path)] for path in found]
    if all(path.name != DEFAULT_MODEL for path in found):
        rows.append([DEFAULT_MODEL, "93 MiB to fetch", "the default; fetched at the first `enginectl start`"])
    out.text(*text.table(("NAME", "SIZE", "PATH"), rows, left=(0, 2), width=out.table_width, shrink=2))


@app.command("fetch", cls=VerbCommand)
def fetch(
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help="What to fetch; alone the embedded default.")
    ] = DEFAULT_MODEL,
    python: PythonOption = None,
    output: OutputOption = Format.text,
) -> None:
    """Fetch a model into the cache. Already there is success."""
    if name.lower() not in DEFAULT_NAMES:
        raise ModelUnusable(
            f"only {DEFAULT_MODEL!r} can be fetched by name here, not {name!r}",
            try_=["download the model's directory, then `enginectl start NAME --model DIR`"],
        )
    before = (models_root() / DEFAULT_MODEL / "config.json").is_file()
    path = default_model(_python(python), out)
    out.document("Model", {"name": DEFAULT_MODEL, "path": str(path), "changed": not before})
    out.text(f"{DEFAULT_MODEL}  {path}{'   (there already)' if before else ''}")


@app.command("convert", cls=VerbCommand)
def convert(
    file: Annotated[
        Path, typer.Argument(metavar="FILE.gguf", help="A GGUF file of the Llama, Mistral or Qwen family.")
    ],
    directory: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="The directory to make; alone: one in the cache.")
    ] = None,
    dtype: Annotated[str, typer.Option("--dtype", help="bfloat16, float16 or float32.")] = "bfloat16",
    python: PythonOption = None,
    output: OutputOption = Format.text,
) -> None:
    """Convert a GGUF file into a directory that an engine loads. All or nothing; says the size before it writes."""
    if dtype not in ("bfloat16", "float16", "float32"):
        raise UsageError(f"--dtype is bfloat16, float16 or float32, not {dtype!r}")
    if not file.is_file():
        raise ModelUnusable(f"{file}: no such file")
    if directory is None:
        path = converted(file.absolute(), _python(python), out)
    else:
        args = [str(file.absolute()), str(directory.absolute()), "--dtype", dtype]
        run_tool(_python(python), "engine.model.gguf", args, out)
        path = check_directory(directory.absolute())
    out.document("Model", {"name": path.name, "path": str(path), "changed": True})
    out.text(f"{path.name}  {path}")
