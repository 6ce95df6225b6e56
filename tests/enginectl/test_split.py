from __future__ import annotations

from pathlib import Path

import pytest

from enginectl.errors import UsageError
from enginectl.split import is_serve_command, split_command


def words(text: str) -> list[str]:
    return ["vllm", "serve", *text.split()]


def test_both_halves() -> None:
    split = split_command(words("some/model --port 9000 --max_model_len=2048 --api-key secret --dtype float32 -asc 2"))
    assert split.model == "some/model" and split.http_port == 9000
    assert (
        split.frontend_args
        == words("some/model --port 9000 --max_model_len=2048 --api-key secret --dtype float32 -asc 2")[2:]
    )
    assert split.engine_args == ["--max-model-len", "2048", "--dtype", "float32"]


def test_the_model_may_be_an_option_and_the_port_left_out() -> None:
    split = split_command(words("--model m --enforce-eager"))
    assert split.model == "m" and split.http_port == 8000
    assert split.engine_args == ["--enforce-eager"]


def test_a_unix_socket_has_no_port() -> None:
    assert split_command(words("m --uds /tmp/x.sock")).http_port is None


def test_options_with_several_words_stay_whole() -> None:
    split = split_command(words("m --allowed-origins a b --middleware x --seed 3"))
    assert split.engine_args == ["--allowed-origins", "a", "--middleware", "x", "--seed", "3"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("m --headless", "no API server"),
        ("m --data-parallel-size 2", "several ranks"),
        ("m -dp 2", "several ranks"),
        ("m --data_parallel_size=4", "several ranks"),
        ("m --data-parallel-backend ray", "Ray"),
        ("m --data-parallel-backend=ray", "Ray"),
        ("m -dpe", "each rank"),
        ("m --data-parallel-hybrid-lb", "several nodes"),
        ("m --nnodes 2", "over several nodes"),
        ("m -r 1", "over several nodes"),
        ("m --data-parallel-rpc-port 1", "decided here"),
        ("--dtype float32", "names no model"),
        ("m --port http", "no number"),
    ],
)
def test_what_cannot_be_split_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        split_command(words(text))
    assert reason in f"{caught.value.message} {caught.value.cause}"


def test_one_of_everything_can_be_split() -> None:
    assert split_command(words("m --data-parallel-size 1 --nnodes=1")).model == "m"


def test_a_config_file_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("port: 8001\ndata-parallel-size: 2\n")
    with pytest.raises(UsageError, match="data-parallel-size 2"):
        split_command(words(f"m --config {path}"))
    with pytest.raises(UsageError, match="cannot be read"):
        split_command(words(f"m --config {tmp_path}/none"))


def test_what_is_a_command() -> None:
    assert is_serve_command(["/venv/bin/vllm", "serve", "m"])
    assert not is_serve_command(["--dtype", "float32"])
    with pytest.raises(UsageError, match="cannot be split"):
        split_command(["vllm", "bench", "m"])
