"""A supervisor stays small: what it imports, and from where."""

from __future__ import annotations

import subprocess
import sys


def test_a_supervisor_loads_neither_torch_nor_the_command_line() -> None:
    code = (
        "import enginectl.supervisor.__main__, sys; "
        "print(sorted({'torch', 'numpy', 'typer', 'click', 'rich', 'psutil', 'tokenizers'} & set(sys.modules)), "
        "sorted(name for name in sys.modules if name.startswith('engine.')))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True).stdout
    heavy, _, engine = out.partition("] ")
    assert heavy == "["
    assert "engine.messages" in engine
    assert not any(name in engine for name in ("engine.proc", "engine.core", "engine.model", "engine.executor"))
