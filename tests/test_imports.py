"""The arrows between rooms point one way. Read from the code, and checked in a real interpreter."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# reports is the part of messages that only our engines send; limits and peek are parts of codec that a relay needs;
# time_slice is a system call.
TOOL_MAY_IMPORT = {
    f"engine.{room}"
    for room in ("messages", "reports", "codec", "limits", "peek", "errors", "config", "client", "time_slice")
}
HEAVY = {"torch", "numpy", "transformers", "safetensors", "gguf"}


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imports(path: Path, *, only_at_import_time: bool) -> Iterator[str]:
    """Full names a module imports; `from a import b` gives a and a.b. TYPE_CHECKING blocks do not count."""
    stack: list[ast.AST] = [parsed(path)]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            stack.extend(node.orelse)
            continue
        if only_at_import_time and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        stack.extend(ast.iter_child_nodes(node))


def modules(folder: str) -> list[Path]:
    found = sorted((ROOT / folder).rglob("*.py"))
    assert found, folder
    return found


def test_the_engine_knows_nothing_of_the_tool() -> None:
    wrong = [
        (p, n)
        for p in modules("engine")
        for n in imports(p, only_at_import_time=False)
        if n.split(".")[0] == "enginectl"
    ]
    assert not wrong


def test_the_tool_uses_the_wire_of_the_engine_and_nothing_else() -> None:
    wrong = []
    for path in modules("enginectl"):
        for name in imports(path, only_at_import_time=False):
            if name.startswith("engine.") and ".".join(name.split(".")[:2]) not in TOOL_MAY_IMPORT:
                wrong.append((str(path.relative_to(ROOT)), name))
    assert not wrong


def test_the_tool_never_imports_torch_or_numpy() -> None:
    wrong = [
        (p, n) for p in modules("enginectl") for n in imports(p, only_at_import_time=False) if n.split(".")[0] in HEAVY
    ]
    assert not wrong


def test_the_scheduler_and_the_lifecycle_know_neither_sockets_nor_tensors() -> None:
    for path in [*modules("engine/scheduler"), ROOT / "engine/lifecycle.py"]:
        roots = {name.split(".")[0] for name in imports(path, only_at_import_time=False)}
        assert not roots & {"zmq", "torch", "numpy"}, path


def test_only_model_and_executor_import_torch_with_the_module() -> None:
    for path in modules("engine"):
        room = path.relative_to(ROOT / "engine").parts[0]
        roots = {name.split(".")[0] for name in imports(path, only_at_import_time=True)}
        assert room in ("model", "executor") or "torch" not in roots, path


def test_supervisor_imports_neither_typer_nor_rich() -> None:
    for path in modules("enginectl/supervisor"):
        roots = {name.split(".")[0] for name in imports(path, only_at_import_time=False)}
        assert not roots & {"typer", "rich", "click"}, path


@pytest.mark.parametrize(
    "module", ["engine.messages", "engine.codec", "engine.client", "engine.errors", "enginectl.cli"]
)
def test_a_real_interpreter_stays_light(module: str) -> None:
    code = f"import sys, {module}; print(sorted(set(sys.modules) & {HEAVY!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
