"""From a command line to the settings of an engine: layers of config, the recorded settings, the model, the
interpreter. Reads files; writes only the model cache, when a model has to be fetched or converted."""

from __future__ import annotations

import glob
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from enginectl import config
from enginectl.config import Layer, Value
from enginectl.context import DEFAULT_NAME, with_suggestion
from enginectl.dirs import state_root, verify_looked
from enginectl.errors import NoSuchEngine, StartFailed, UsageError
from enginectl.models import DEFAULT_LABEL, DEFAULT_MODEL, resolve_model
from enginectl.output import Output
from enginectl.outside import Outside, OutsideOptions, outside_of
from enginectl.rundir import check_readable, known_names, load_settings
from enginectl.settings import EngineSettings, check_settings

DEFAULT_TIMEOUT_S = 600.0
UNCOUNTED = ("/dev/kfd", "/dev/dxg", "/dev/nvhost-gpu", "/dev/nvgpu")
"""Devices of GPUs that have none of their own each: AMD's, those of WSL2, of NVIDIA's small boards."""
COUNTED = ("/dev/nvidia[0-9]*", "/proc/driver/nvidia/gpus/*")
"""One each. Devices may be made only when somebody first uses the driver."""
PCI_DEVICES = "/sys/bus/pci/devices/*"


@dataclass(frozen=True, slots=True)
class Asked:
    """What one `start` asks for. `layer`: every key with its origin. `given`: options that may conflict."""

    name: str
    layer: Layer
    recorded: EngineSettings | None
    given: frozenset[str]
    outside: Outside = field(default_factory=Outside)

    @property
    def timeout_s(self) -> float:
        return float(self.layer["timeout"].value) if "timeout" in self.layer else DEFAULT_TIMEOUT_S

    @property
    def python(self) -> str:
        if "python" in self.layer and not (self.layer["python"].origin == "recorded" and self.outside.python):
            return find_python(str(self.layer["python"].value))
        return self.outside.python or sys.executable

    @property
    def repeated(self) -> dict[str, object]:
        """What is only so because it was typed at the last start, and is not what it would be anyway."""
        usual = {"restart": "no", "python": sys.executable, "model": self.model}
        recorded = {key: value.value for key, value in sorted(self.layer.items()) if value.origin == "recorded"}
        return {key: value for key, value in recorded.items() if key not in usual or value != usual[key]}

    @property
    def model(self) -> str:
        return str(self.layer["model"].value)


def ask(
    name: str | None,
    *,
    model: str | None = None,
    sets: Sequence[str] = (),
    gpus: str | None = None,
    restart: str | None = None,
    python: str | None = None,
    timeout_s: float | None = None,
    outside: OutsideOptions | None = None,
) -> Asked:
    """All layers of one start, resolved. Raises UsageError, or NoSuchEngine for a new name without a model."""
    name = check_start_name(name or DEFAULT_NAME)
    flags, dropped = config.parse_sets(sets), config.dropped_sets(sets)
    if gpus in config.UNSET:
        dropped, gpus = dropped | {"gpus"}, None
    for key, value in (
        ("model", model),
        ("gpus", gpus),
        ("restart", restart and config.parse_restart(restart)),
        ("python", python),
        ("timeout", timeout_s),
    ):
        if value is not None:
            flags[key] = Value(value, "flag")
    environment = config.environment_layer(os.environ)
    verify_looked(state_root())
    recorded = load_settings(name)
    if model is None:
        check_readable(name)
    is_same = recorded is not None and model is None
    around = outside_of(recorded if is_same else None, **(outside or {}))
    if around.model:
        flags["model"] = Value(around.model, "flag")
    kept = {key: value for key, value in _recorded_layer(recorded, flags | environment).items() if key not in dropped}
    layers = [flags, environment, kept, *config.file_layers(name, os.environ)]
    resolved = config.resolve(layers)
    if "model" not in resolved:
        if name != DEFAULT_NAME:
            raise _is_a_model(name) if (Path(name) / "config.json").exists() else _unknown_name(name)
        resolved["model"] = Value(DEFAULT_MODEL, "default")
    given = frozenset(
        key for key in ("model", "restart", "python", "gpus") if key in flags | environment or key in dropped
    )
    return Asked(name=name, layer=resolved, recorded=recorded, given=given | around.typed, outside=around)


def _recorded_layer(recorded: EngineSettings | None, typed: Layer) -> Layer:
    """What was typed at the last start. Another model makes it another engine: nothing is taken over then."""
    if recorded is None or "model" in typed:
        return {}
    keys = recorded.config if recorded.typed is None else [k for k in recorded.typed if k in recorded.config]
    layer = {key: Value(recorded.config[key], "recorded") for key in keys}
    layer["model"] = Value(recorded.config["model"], "recorded")
    layer["restart"] = Value(recorded.restart, "recorded")
    layer["python"] = Value(recorded.python, "recorded")
    if recorded.gpus is not None:
        layer["gpus"] = Value(",".join(map(str, recorded.gpus)), "recorded")
    return layer


def check_start_name(name: str) -> str:
    """A model path in the place of NAME gets the right command. Raises UsageError."""
    from enginectl.dirs import check_name

    if "/" in name or name.endswith(".gguf"):
        raise _is_a_model(name)
    return check_name(name)


def _is_a_model(name: str) -> UsageError:
    stem = Path(name.rstrip("/")).name.removesuffix(".gguf").lower() or "mine"
    return UsageError(f"{name!r} is a model, not an engine's name", try_=[f"enginectl start {stem} --model {name}"])


def _unknown_name(name: str) -> NoSuchEngine:
    known = known_names()
    error = NoSuchEngine(
        f"no engine was ever started as {name!r}, so its model is not known",
        cause=f"known names: {', '.join(known)}" if known else "no engine was started yet",
        try_=[f"enginectl start {name} --model MODEL", "enginectl model ls"],
    )
    with_suggestion(error, name, known)
    return error


def find_python(given: str) -> str:
    """The absolute path of an interpreter. Raises UsageError."""
    found = shutil.which(given) if "/" not in given else given
    path = os.path.abspath(os.path.expanduser(found or given))
    if not (os.path.isfile(path) and os.access(path, os.X_OK)):
        raise UsageError(f"--python: {given!r} is not an interpreter that can be run")
    return path


def parse_gpus(text: str) -> list[int]:
    try:
        gpus = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        gpus = []
    if not gpus or min(gpus) < 0:
        raise UsageError(f"--gpus wants numbers, as in 0,1; not {text!r}")
    return gpus


def check_gpus(gpus: list[int]) -> list[int]:
    """The numbers themselves. Raises UsageError where no such GPU can be seen; of some kinds none can be counted."""
    cards = max(len(glob.glob(pattern)) for pattern in COUNTED)
    if not cards and (any(map(os.path.exists, UNCOUNTED)) or has_nvidia_card()):
        return gpus
    if missing := [number for number in gpus if number >= cards]:
        raise UsageError(
            f"--gpus: there is no GPU {', '.join(map(str, missing))} here",
            cause=f"the driver shows {cards or 'none'}{', numbered from 0' if cards else ''}",
            try_=["without --gpus; --gpus - forgets those of the last start", "enginectl doctor"],
        )
    return gpus


def has_nvidia_card() -> bool:
    """Whether one is plugged in, with a driver or not."""
    return any(
        _identity(device, "vendor") == "0x10de" and _identity(device, "class").startswith("0x03")
        for device in glob.glob(PCI_DEVICES)
    )


def _identity(device: str, name: str) -> str:
    try:
        return Path(device, name).read_text().strip()
    except OSError:
        return ""


def make_settings(asked: Asked, out: Output) -> EngineSettings:
    """The settings to save; fetches or converts the model when it must. Raises UsageError."""
    layer, python = asked.layer, asked.python
    known = None if asked.recorded is None else asked.recorded.config.get("model")
    is_known = layer["model"].origin == "recorded" and asked.model == known
    label = asked.recorded.model_label if asked.recorded else ""
    if is_known and os.path.isdir(asked.model):
        path = asked.model
    elif is_known and label == DEFAULT_LABEL and os.path.basename(asked.model) == DEFAULT_MODEL:
        path = str(resolve_model(DEFAULT_MODEL, python, out).path)  # its cache was removed
    else:
        path, label = _find_model(asked, python, out)
    values = {key: value.value for key, value in layer.items() if key not in config.OPTIONS} | {"model": path}
    typed = sorted(
        key
        for key, value in layer.items()
        if key not in config.OPTIONS and not value.origin.startswith("/") and key != "model"
    )
    return check_settings(
        asked.outside.apply(
            EngineSettings(
                name=asked.name,
                config=values,
                python=python,
                typed=typed,
                model_label=label,
                gpus=check_gpus(parse_gpus(str(layer["gpus"].value))) if "gpus" in layer else None,
                restart=str(layer["restart"].value) if "restart" in layer else "no",
                start_timeout_s=max(DEFAULT_TIMEOUT_S, asked.timeout_s),
            )
        )
    )


def _find_model(asked: Asked, python: str, out: Output) -> tuple[str, str]:
    """(path, label). A foreign engine looks names up itself, so what is no file here is its business."""
    is_here = os.path.exists(os.path.expanduser(asked.model)) or asked.model == DEFAULT_MODEL
    if asked.outside.engine == "vllm" and not is_here:
        return asked.model, asked.model
    model = resolve_model(asked.model, python, out)
    return str(model.path), model.label


def check_interpreter(settings: EngineSettings) -> None:
    """Whether that interpreter has what the engine needs, before a supervisor is spawned for it. Raises StartFailed."""
    import subprocess

    from enginectl.launch import child_environment

    if settings.engine == "vllm":
        check_foreign(settings)
        return
    wanted = ["engine"] if settings.config.get("executor") == "null" else ["engine", "torch", "numpy", "safetensors"]
    code = f"import importlib.util as u; print(*[m for m in {wanted!r} if u.find_spec(m) is None])"
    try:
        found = subprocess.run(
            [settings.python, "-c", code],
            capture_output=True,
            text=True,
            timeout=30,
            cwd="/",
            env=child_environment(),
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StartFailed(f"the interpreter {settings.python} does not run", cause=str(error), id="E1204") from None
    missing = found.stdout.split()
    if found.returncode or missing:
        cause = f"missing: {', '.join(missing)}" if missing else found.stderr.strip().splitlines()[-1:][0]
        raise StartFailed(
            f"{settings.python} cannot run an engine",
            cause=cause,
            id="E1204",
            try_=[
                f"{settings.python} -m pip install 'enginectl[engine]'",
                "--python PATH of an interpreter that has it",
            ],
        )


def check_foreign(settings: EngineSettings) -> None:
    """Whether vLLM is installed for that interpreter; its import takes too long to try. Raises StartFailed."""
    import subprocess

    code = "import importlib.util as u; print(u.find_spec('vllm') is not None)"
    try:
        found = subprocess.run(
            [settings.python, "-c", code], capture_output=True, text=True, timeout=30, cwd="/", check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StartFailed(f"the interpreter {settings.python} does not run", cause=str(error), id="E1204") from None
    if found.stdout.strip() != "True":
        raise StartFailed(
            f"vLLM is not installed for {settings.python}",
            cause="there is no module named vllm",
            id="E1204",
            try_=["--python PATH of an interpreter that has it"],
        )
