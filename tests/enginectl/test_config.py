from __future__ import annotations

from pathlib import Path

import pytest

from enginectl.config import (
    Value,
    environment_layer,
    file_layer,
    file_layers,
    parse_restart,
    parse_sets,
    project_file,
    resolve,
    user_file,
)
from enginectl.errors import UsageError

FILE = """
[options]
timeout = "2m"
restart = "on-failure:3"
[settings]
max_num_seqs = 32
kv_memory = "1GiB"
[engines.qwen]
max_num_seqs = 8
python = "/opt/py"
"""


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_file_speaks_for_all_engines_and_for_one(tmp_path: Path) -> None:
    path = write(tmp_path / "enginectl.toml", FILE)
    other, qwen = file_layer(path, "other"), file_layer(path, "qwen")
    assert (other["max_num_seqs"].value, qwen["max_num_seqs"].value) == (32, 8)
    assert other["kv_memory"].value == 1024**3
    assert other["timeout"].value == 120.0
    assert "python" not in other
    assert qwen["python"] == Value("/opt/py", f"{path} [engines.qwen]")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[settings]\nmax_model_lenn = 3", "'max_model_len'"),
        ("[setings]\na = 1", "'settings'"),
        ("[options]\ntimeot = '3s'", "'timeout'"),
        ("[settings]\nmax_num_seqs = 'many'", "max_num_seqs"),
        ("[settings]\nenable_prefix_caching = 3", "enable_prefix_caching"),
        ("[options]\ntimeout = 'soon'", "soon"),
        ("[options]\nrestart = 'sometimes'", "sometimes"),
        ("[engines.other]\nmax_model_lenn = 3", "'max_model_len'"),
        ("settings = 3", "table"),
        ("[settings", "cannot read"),
    ],
)
def test_what_is_wrong_in_a_file_names_the_file_and_the_key(tmp_path: Path, text: str, said: str) -> None:
    path = write(tmp_path / "enginectl.toml", text)
    with pytest.raises(UsageError) as caught:
        file_layer(path, "qwen")
    assert said in caught.value.message
    assert str(path) in caught.value.message


def test_flag_beats_environment_beats_project_beats_user(tmp_path: Path) -> None:
    project = write(tmp_path / "p" / "enginectl.toml", "[settings]\nseed = 3\nthreads = 3\nmax_num_seqs = 3\n")
    write(
        tmp_path / "u" / "enginectl" / "enginectl.toml",
        "[settings]\nseed = 4\nthreads = 4\nmax_num_seqs = 4\nblock_size = 4\n",
    )
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "u"), "ENGINECTL_SEED": "2", "ENGINECTL_THREADS": "2"}
    layers = [parse_sets(["seed=1"]), environment_layer(environ), *file_layers("qwen", environ, project.parent / "sub")]
    found = resolve(layers)
    assert [found[key].value for key in ("seed", "threads", "max_num_seqs", "block_size")] == [1, 2, 3, 4]
    assert [found[key].origin for key in ("seed", "threads")] == ["flag", "ENGINECTL_THREADS"]
    assert found["max_num_seqs"].origin.startswith(str(project))


def test_a_bad_environment_variable_is_named() -> None:
    with pytest.raises(UsageError) as caught:
        environment_layer({"ENGINECTL_MAX_NUM_SEQS": "lots"})
    assert "ENGINECTL_MAX_NUM_SEQS" in caught.value.message


def test_a_variable_that_is_nearly_one_is_refused_and_others_are_nobodys_business() -> None:
    with pytest.raises(UsageError, match="ENGINECTL_MAX_MODELLEN means nothing; did you mean ENGINECTL_MAX_MODEL_LEN"):
        environment_layer({"ENGINECTL_MAX_MODELLEN": "3"})
    for name in ("ENGINECTL_FOO", "ENGINECTL_TEST_MODEL", "ENGINECTL_", "MAX_MODELLEN", "ENGINECTL_STATE_DIR"):
        assert environment_layer({name: "3"}) == {}


def test_sets_are_typed_and_suggest() -> None:
    layer = parse_sets(["max-model-len=4096", "kv_memory=512MiB", "enable_prefix_caching=false"])
    assert [value.value for value in layer.values()] == [4096, 512 * 1024**2, False]
    with pytest.raises(UsageError, match="max_model_len"):
        parse_sets(["max_model_length=4096"])
    with pytest.raises(UsageError, match="key=value"):
        parse_sets(["seed"])


def test_a_project_file_that_others_may_write_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "enginectl.toml", FILE)
    assert project_file(tmp_path) == path
    path.chmod(0o666)
    with pytest.raises(UsageError) as caught:
        project_file(tmp_path)
    assert f"chmod go-w {path}" in caught.value.try_


def test_a_user_file_that_others_may_write_is_refused_unless_it_was_named(tmp_path: Path) -> None:
    path = write(tmp_path / "enginectl" / "enginectl.toml", FILE)
    assert user_file({"XDG_CONFIG_HOME": str(tmp_path)}) == path
    path.chmod(0o666)
    with pytest.raises(UsageError) as caught:
        user_file({"XDG_CONFIG_HOME": str(tmp_path)})
    assert f"chmod go-w {path}" in caught.value.try_
    assert user_file({"ENGINECTL_CONFIG": str(path)}) == path


def test_a_named_user_file_must_be_there(tmp_path: Path) -> None:
    assert user_file({"XDG_CONFIG_HOME": str(tmp_path)}) is None
    missing = {"ENGINECTL_CONFIG": str(tmp_path / "no.toml")}
    with pytest.raises(UsageError, match="cannot read"):
        file_layers("qwen", missing, tmp_path)


def test_restart_policies() -> None:
    assert [parse_restart(text) for text in ("no", "always", "on-failure", "on-failure:4")][3] == "on-failure:4"
    for text in ("", "yes", "on-failure:", "on-failure:x", "always:3"):
        with pytest.raises(UsageError):
            parse_restart(text)
