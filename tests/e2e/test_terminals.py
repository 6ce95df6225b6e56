"""Rough places: pipes that close, closed streams, a full device, no HOME, ASCII, no colour; and what a start costs."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.ctl import Ctl

pytestmark = pytest.mark.e2e
LOOKS = (
    ["ps"],
    ["status"],
    ["requests"],
    ["events"],
    ["call", "--list"],
    ["logs"],
    ["version"],
    ["help"],
    ["model", "ls"],
)


def shell(ctl: Ctl, script: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """`$E` is the command."""
    env = ctl.env | {"E": f"{sys.executable} -m enginectl"} | environ
    return subprocess.run(
        ["bash", "-c", script], env=env, cwd=ctl.base, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("args", LOOKS, ids=" ".join)
def test_a_pipe_that_closes_ends_quietly(served: Ctl, args: Sequence[str]) -> None:
    result = shell(served, f"$E {' '.join(args)} | head -1; echo ${{PIPESTATUS[0]}}", PYTHONUNBUFFERED="1")
    first, code = result.stdout.splitlines()
    assert first
    assert code == "0"
    assert result.stderr in ("", "nothing in flight\n")


@pytest.mark.parametrize("verb", ["events", "logs"])
def test_who_follows_in_silence_ends_with_its_reader(served: Ctl, verb: str) -> None:
    """Nothing more happens to the engine: no write would tell."""
    result = shell(served, f"$E {verb} t -f | head -1; echo ${{PIPESTATUS[0]}}")
    assert result.stdout.splitlines()[-1] == "0"
    assert result.stderr == ""


def test_a_closed_stdout_is_said_in_one_line(served: Ctl) -> None:
    result = shell(served, "$E status >&-; echo $? >&2")
    assert result.stderr.splitlines() == ["note: stdout is closed; what would have been printed there is lost", "0"]
    assert shell(served, "$E status -o json 2>&- | python3 -m json.tool >/dev/null && echo fine").stdout == "fine\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_device_is_one_line(served: Ctl) -> None:
    result = shell(served, "$E status >/dev/full; echo $?")
    assert result.stdout == "2\n"
    assert result.stderr == "error[E1502]: cannot write the output: No space left on device\n"


def test_no_environment_at_all(served: Ctl) -> None:
    env = {key: served.env[key] for key in served.env if key.startswith("ENGINECTL_")} | {
        "PYTHONPATH": served.env["PYTHONPATH"]
    }
    run = subprocess.run(
        [sys.executable, "-m", "enginectl", "status", "-o", "json"],
        env=env,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert json.loads(run.stdout)["name"] == "t"
    bare = subprocess.run(
        [sys.executable, "-m", "enginectl", "version"],
        cwd="/",
        capture_output=True,
        timeout=30,
        env={"PYTHONPATH": served.env["PYTHONPATH"], "ENGINECTL_STATE_DIR": str(served.base / "none")},
        check=False,
    )
    assert bare.returncode == 0


@pytest.mark.parametrize(
    "environ",
    [
        {"NO_COLOR": "1"},
        {"FORCE_COLOR": "1"},
        {"TERM": "dumb"},
        {"LANG": "C", "PYTHONIOENCODING": "ascii"},
        {"COLUMNS": "40"},
        {"PYTHONWARNINGS": "always"},
    ],
    ids=str,
)
def test_no_escape_ever_reaches_a_pipe(served: Ctl, environ: dict[str, str]) -> None:
    for args in (["ps"], ["status"], ["start", "t"], ["--help"]):
        result = served.ok(*args, **environ)
        assert "\x1b" not in result.out + result.err
        assert "\r" not in result.out + result.err
    document = json.loads(served.ok("status", "-o", "json", **environ).out)
    assert document["name"] == "t"
    if environ.get("PYTHONIOENCODING"):
        assert served.ok("status", **environ).out.isascii()


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["start", "z", "--", "vllm", "serve"], 2, "names no model"),
        (["serve"], 2, "'start'"),
        (["list"], 2, "'ps'"),
        (["rm"], 2, "'stop'"),
        (["statsu"], 2, "'status'"),
        (["drian"], 2, "'drain'"),
        (["status", "--exit-staus"], 2, "'--exit-status'"),
        (["start", "t", "--max-model-len", "3"], 2, "--set max_model_len=VALUE"),
        (["start", "t", "--set", "max_model_lem=3"], 2, "max_model_len"),
        (["call", "pingg"], 4, "'ping'"),
        (["status", "tt"], 4, "'t'"),
        (["model"], 2, "ls, fetch, convert"),
        (["ps", "-o", "yaml"], 2, "yaml"),
        (["-o", "yaml", "ps"], 2, "text or json, not 'yaml'"),
        (["--output=yaml", "ps"], 2, "text or json, not 'yaml'"),
        (["-oyaml", "ps"], 2, "text or json, not 'yaml'"),
        (["--output"], 2, "text or json, and it is missing"),
        (["abort", "-e", "t", "-e"], 2, "requires an argument"),
        ([], 2, "no verb"),
    ],
)
def test_mistakes_get_the_right_command_in_text_and_json(served: Ctl, args: list[str], code: int, said: str) -> None:
    result = served(*args)
    assert result.code == code
    assert said in result.err
    assert result.out == ""
    if not any(word.startswith(("-o", "--output")) for word in args):
        answer = served("-o", "json", *args)
        assert answer.code == code
        assert answer.document["exit"] == code
        assert answer.document["kind"] == "Error"


def test_a_bug_leaves_its_traceback_in_a_file(ctl: Ctl, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nimport enginectl.rundir as rundir\n"
        "def broken():\n    raise ZeroDivisionError('planted')\nrundir.list_engines = broken\n"
    )
    result = ctl("ps", "-o", "json", PYTHONPATH=f"{tmp_path}:{ctl.env['PYTHONPATH']}")
    assert result.code == 125
    assert "Traceback" not in result.err
    assert result.document["id"] == "E1999"
    log = Path(result.document["cause"].removeprefix("traceback: "))
    assert "ZeroDivisionError: planted" in log.read_text()
    assert log.is_relative_to(tmp_path)


@pytest.mark.parametrize(
    "args",
    [
        ["ps"],
        ["status"],
        ["start", "t"],
        ["generate", "x", "--max-tokens", "2"],
        ["--help"],
        ["call", "ping"],
        ["top", "--once"],
    ],
    ids=" ".join,
)
def test_torch_is_never_imported(served: Ctl, tmp_path: Path, args: list[str]) -> None:
    """In the real process: a module that refuses to be imported stands in the way."""
    for name in ("torch", "numpy", "transformers", "safetensors"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'a').write('{name}')\n")
    result = served(*args, PYTHONPATH=f"{tmp_path}:{served.env['PYTHONPATH']}")
    assert result.code == 0, result.err
    assert not (tmp_path / "imported").exists()


@pytest.mark.parametrize("args", [["--version"], ["--help"], ["ps"], ["status"]], ids=" ".join)
def test_what_is_felt_as_instant_imports_nothing_slow(served: Ctl, tmp_path: Path, args: list[str]) -> None:
    slow = ("rich", "tokenizers", "jinja2", "psutil", "asyncio", "multiprocessing", "torch", "numpy")
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\nend = os._exit\n"
        f"def leave(code):\n    loaded = ' '.join(m for m in {slow!r} if m in sys.modules)\n"
        "    sys.stderr.write(f'LOADED {loaded}\\n')\n"
        "    sys.stderr.flush()\n    end(code)\nos._exit = leave\n"
    )
    result = served.ok(*args, PYTHONPATH=f"{tmp_path}:{served.env['PYTHONPATH']}")
    assert result.err.splitlines()[-1].split() == ["LOADED"]


def cpu_s(ctl: Ctl, *command: str) -> float:
    """What a process of it takes, the best of three: time that others take from it does not count."""
    spent = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, *command], env=ctl.env, cwd=ctl.base, capture_output=True, timeout=60, check=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(spent)


def test_status_costs_at_most_twice_its_libraries(served: Ctl) -> None:
    assert cpu_s(served, "-m", "enginectl", "status", "t") <= 2 * cpu_s(served, "-c", "import typer, zmq, msgspec")
