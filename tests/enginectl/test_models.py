from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import pytest

from enginectl import models
from enginectl.errors import BadRuntimeDir
from enginectl.models import ModelUnusable, cached_models, check_directory, resolve_model, run_tool
from enginectl.output import Output


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ENGINECTL_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


def make(path: Path, *names: str) -> Path:
    path.mkdir(parents=True)
    for name in names:
        (path / name).write_text("{}")
    return path


GOOD = ("config.json", "tokenizer.json", "model.safetensors")


def quiet() -> Output:
    return Output(io.StringIO(), io.StringIO())


def test_a_directory_and_a_cached_name(tmp_path: Path, cache: Path) -> None:
    directory = make(tmp_path / "qwen", *GOOD)
    assert resolve_model(str(directory), sys.executable, quiet()) == (directory, "qwen")
    cached = make(cache / "Small", *GOOD)
    make(cache / ".unfinished", *GOOD)
    assert cached_models() == [cached]
    assert resolve_model("small", sys.executable, quiet()) == (cached, "Small")


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("tokenizer.json", "model.safetensors"), "config.json"),
        (("config.json", "tokenizer.json"), "no *.safetensors"),
        (("config.json", "tokenizer.json", "pytorch_model.bin"), "pytorch_model.bin is pickled"),
        (("config.json", "model.safetensors"), "tokenizer.json"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, names: tuple[str, ...], said: str) -> None:
    directory = make(tmp_path / "m", *names)
    with pytest.raises(ModelUnusable) as caught:
        check_directory(directory)
    assert said in caught.value.message


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    directory = make(tmp_path / "m", "config.json", "tokenizer.json", "a.safetensors")
    index = {"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelUnusable, match=r"b\.safetensors is missing \(1 of 2 shards\)"):
        check_directory(directory)
    (directory / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(ModelUnusable, match="cannot be read"):
        check_directory(directory)


def test_in_tmp_the_cache_is_closed_whatever_the_umask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / f"enginectl-{os.geteuid()}"
    monkeypatch.setattr(models, "SHARED", tmp_path)
    monkeypatch.setattr(models, "run_tool", lambda *_: make(root / "cache" / "models" / "smollm2-135m-instruct", *GOOD))
    monkeypatch.setenv("ENGINECTL_CACHE_DIR", str(root / "cache"))
    before = os.umask(0o002)
    try:
        assert resolve_model("default", sys.executable, quiet()).path.is_dir()
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in (root, root / "cache")] == [0o700, 0o700]
    root.chmod(0o775)
    with pytest.raises(BadRuntimeDir, match="others may enter or write it"):
        resolve_model("default", sys.executable, quiet())


def test_unknown_models_suggest(cache: Path) -> None:
    make(cache / "qwen-small", *GOOD)
    with pytest.raises(ModelUnusable) as caught:
        resolve_model("qwen-smal", sys.executable, quiet())
    assert caught.value.try_ == ["--model qwen-small"]


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    file = tmp_path / "model.bin"
    file.write_text("x")
    with pytest.raises(ModelUnusable):
        resolve_model(str(file), sys.executable, quiet())


def test_a_tool_is_shown_and_its_error_is_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "faketool.py").write_text(
        "import json, sys\n"
        "print(json.dumps({'event': 'size', 'detail': 'will write 5 MB'}), file=sys.stderr)\n"
        "print('noise', file=sys.stderr)\n"
        "print(json.dumps({'event': sys.argv[1], 'error': 'no space'}), file=sys.stderr)\n"
        "sys.exit(sys.argv[1] == 'failed')\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    out = quiet()
    assert run_tool(sys.executable, "faketool", ["done"], out)["event"] == "done"
    assert out.stderr.getvalue() == "  will write 5 MB\n"  # type: ignore[attr-defined]
    with pytest.raises(ModelUnusable) as caught:
        run_tool(sys.executable, "faketool", ["failed"], quiet())
    assert caught.value.cause == "no space"
    with pytest.raises(ModelUnusable) as missing:
        run_tool(sys.executable, "nosuchtool", [], quiet())
    assert missing.value.id == "E1204"
