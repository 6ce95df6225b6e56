from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from enginectl import asking
from enginectl.asking import ask, check_gpus, find_python, make_settings, parse_gpus
from enginectl.errors import NoSuchEngine, UsageError
from enginectl.models import DEFAULT_LABEL, DEFAULT_MODEL, Model
from enginectl.output import Output
from enginectl.rundir import paths_of, save_settings
from enginectl.settings import EngineSettings


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("state", "runtime", "cache"):
        monkeypatch.setenv(f"ENGINECTL_{name.upper()}_DIR", str(tmp_path / name))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def model(home: Path) -> Path:
    path = home / "models" / "qwen"
    path.mkdir(parents=True)
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (path / name).write_text("{}")
    return path


def record(model: Path, **config: object) -> None:
    typed = sorted(config)
    save_settings(EngineSettings(name="qwen", config={"model": str(model), **config}, typed=typed))  # type: ignore[dict-item]


def quiet() -> Output:
    return Output(io.StringIO(), io.StringIO())


def test_the_default_engine_has_the_default_model() -> None:
    asked = ask(None)
    assert (asked.name, asked.model, asked.layer["model"].origin) == ("default", "smollm2-135m-instruct", "default")


def test_a_new_name_needs_a_model(model: Path) -> None:
    with pytest.raises(NoSuchEngine) as caught:
        ask("qwen")
    assert caught.value.exit == 4
    record(model)
    assert ask("qwen").model == str(model)
    with pytest.raises(NoSuchEngine, match="did you mean 'qwen'"):
        ask("qwenn")


def test_settings_that_cannot_be_read_are_named_and_a_model_writes_them_anew(model: Path) -> None:
    record(model)
    path = paths_of("qwen").settings
    path.write_text("{")
    with pytest.raises(UsageError) as caught:
        ask("qwen")
    assert str(path) in caught.value.message and "did you mean" not in caught.value.message
    assert caught.value.try_ == ["enginectl start qwen --model MODEL", f"rm {path}"]
    assert ask("qwen", model=str(model)).model == str(model)


def test_the_default_model_is_fetched_again_when_its_cache_was_removed(
    home: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetched(given: str, python: str, out: Output) -> Model:
        return Model(model, given)

    monkeypatch.setattr(asking, "resolve_model", fetched)
    gone = home / "cache" / "models" / DEFAULT_MODEL
    save_settings(EngineSettings(name="default", config={"model": str(gone)}, model_label=DEFAULT_LABEL, typed=[]))
    settings = make_settings(ask(None), quiet())
    assert (settings.config["model"], settings.model_label) == (str(model), DEFAULT_LABEL)


def test_what_was_typed_is_remembered_and_what_a_file_said_is_read_again(home: Path, model: Path) -> None:
    record(model, max_num_seqs=16)
    (home / "enginectl.toml").write_text("[settings]\nmax_num_seqs = 64\nseed = 5\n")
    asked = ask("qwen", sets=["threads=2"])
    assert {key: asked.layer[key].value for key in ("max_num_seqs", "seed", "threads")} == {
        "max_num_seqs": 16,
        "seed": 5,
        "threads": 2,
    }
    settings = make_settings(asked, quiet())
    assert settings.typed == ["max_num_seqs", "threads"]
    assert settings.config == {"model": str(model), "max_num_seqs": 16, "seed": 5, "threads": 2}


def test_another_model_makes_it_another_engine(model: Path) -> None:
    record(model, max_num_seqs=16)
    asked = ask("qwen", model=str(model))
    assert "max_num_seqs" not in asked.layer


def test_the_environment_speaks_too(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINECTL_MODEL", str(model))
    monkeypatch.setenv("ENGINECTL_MAX_NUM_SEQS", "3")
    monkeypatch.setenv("ENGINECTL_RESTART", "always")
    settings = make_settings(ask("qwen"), quiet())
    assert (settings.config["max_num_seqs"], settings.restart, settings.model) == (3, "always", "qwen")
    assert make_settings(ask("qwen", sets=["max_num_seqs=4"], restart="no"), quiet()).restart == "no"


def test_a_longer_wait_moves_the_engines_own_deadline(model: Path) -> None:
    assert make_settings(ask("qwen", model=str(model), timeout_s=1800.0), quiet()).start_timeout_s == 1800.0
    assert make_settings(ask("qwen", model=str(model), timeout_s=5.0), quiet()).start_timeout_s == 600.0


@pytest.mark.parametrize("name", ["./qwen", "org/model", "weights.gguf", "qwen"])
def test_a_model_as_name_gets_the_right_command(model: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(model.parent)
    with pytest.raises(UsageError) as caught:
        ask(name)
    assert caught.value.try_[0].startswith("enginectl start ")
    assert caught.value.try_[0].endswith(f"--model {name}")


def test_gpus_are_counted_by_devices_or_by_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device may be made at the first use of the driver only."""
    monkeypatch.setattr(asking, "COUNTED", (f"{tmp_path}/nvidia[0-9]*", f"{tmp_path}/gpus/*"))
    monkeypatch.setattr(asking, "PCI_DEVICES", f"{tmp_path}/pci/*")
    monkeypatch.setattr(asking, "UNCOUNTED", ())

    def plug_in(address: str, vendor: str, kind: str) -> None:
        device = tmp_path / "pci" / address
        device.mkdir(parents=True)
        (device / "vendor").write_text(f"{vendor}\n")
        (device / "class").write_text(f"{kind}\n")

    plug_in("0000:00:01.0", "0x1002", "0x030000")  # of another maker
    plug_in("0000:00:02.0", "0x10de", "0x040300")  # its sound
    (tmp_path / "pci" / "0000:00:03.0").mkdir()
    with pytest.raises(UsageError, match="there is no GPU 0 here"):
        check_gpus([0])
    plug_in("0000:00:04.0", "0x10de", "0x030200")
    assert check_gpus([0, 5]) == [0, 5]
    (tmp_path / "nvidia0").touch()
    (tmp_path / "nvidiactl").touch()
    for number in range(2):
        (tmp_path / "gpus" / str(number)).mkdir(parents=True)
    assert check_gpus([0, 1]) == [0, 1]
    with pytest.raises(UsageError, match="there is no GPU 2 here"):
        check_gpus([1, 2])


def test_gpus_and_interpreters() -> None:
    assert parse_gpus("0, 1") == [0, 1]
    for text in ("", "a", "-1", "0;1"):
        with pytest.raises(UsageError):
            parse_gpus(text)
    assert find_python(sys.executable) == sys.executable
    with pytest.raises(UsageError):
        find_python("no-such-python")
