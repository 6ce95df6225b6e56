"""Starts of a real engine process against frontends that are late, cut, silent or wrong, and what it says then."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
import zmq

from tests.support.engine_process import EngineProcess, engine_environment
from tests.support.frontend import RawFrontend
from tests.support.wait import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.fault]


@contextmanager
def starting(frontend: RawFrontend, model: Path, log: Path, **options: object) -> Iterator[EngineProcess]:
    with EngineProcess(frontend, model, log, **{"executor": "null", **options}) as engine:  # type: ignore[arg-type]
        yield engine


def init(**addresses: object) -> bytes:
    return msgspec.msgpack.encode({"addresses": addresses, "parallel_config": {}})


def test_the_command_as_it_is_written(tiny_model: Path, tmp_path: Path) -> None:
    with RawFrontend() as frontend:
        words = (
            f"{sys.executable} -m engine --handshake {frontend.handshake_address} --model {tiny_model} "
            "--engine-index 0 --max-model-len 2048 --max-num-seqs 64 --dtype bfloat16 --kv-memory 1GiB --executor null"
        )
        with (tmp_path / "log").open("wb") as log:
            engine = subprocess.Popen(words.split(), stdout=log, stderr=log, env=engine_environment())
        try:
            ready = frontend.wait_ready()
            assert (ready.max_model_len, ready.max_num_seqs, ready.dtype) == (2048, 64, "bfloat16")
            assert ready.num_gpu_blocks * ready.block_size == ready.kv_cache_size_tokens
            assert (ready.kv_cache_size_tokens or 0) >= 2048
            frontend.add("a", [5, 6, 7], max_tokens=3)
            assert len(frontend.collect("a").token_ids) == 3
            frontend.call("shutdown", 0.0)
            frontend.wait_dead(10)
            assert engine.wait(10) == 0
        finally:
            engine.kill()
            engine.wait()


def test_one_hello_while_the_frontend_thinks_and_a_bounded_wait(tiny_model: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with RawFrontend() as frontend, starting(frontend, tiny_model, log, handshake_timeout=2) as engine:
        frontend.take_status()
        with pytest.raises(TimeoutError):
            frontend.take_status(1.0)
        assert engine.wait() == 1
        with pytest.raises(TimeoutError):
            frontend.take_status(0.2)
        assert "phase 'handshake'" in engine.log and "no INIT from" in engine.log and "within 2 s" in engine.log
        assert "connected, but no answer to HELLO" in engine.log and "Traceback" not in engine.log


def test_a_connection_that_is_cut_before_init_gives_way_to_another(tiny_model: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        nobody = RawFrontend()
        nobody.close()
        nobody.handshake_address = address
        with EngineProcess(nobody, tiny_model, tmp_path / "log", executor="null") as engine:
            for _ in range(2):
                listener.accept()[0].close()
            listener.close()
            with RawFrontend(handshake=address) as frontend:
                frontend.wait_ready()
                frontend.call("ping")
            assert engine.is_alive()


@pytest.mark.parametrize(
    ("frame", "cause"),
    [
        (b"\xc1", "INIT"),
        (b"\x91" * 5000, "INIT"),
        (init(inputs=[], outputs=[]), "0 input addresses"),
        (init(inputs=["ipc:///x"], outputs=[]), "1 input addresses and 0 output"),
    ],
)
def test_an_init_that_is_wrong_ends_the_start_with_the_reason(
    tiny_model: Path, tmp_path: Path, frame: bytes, cause: str
) -> None:
    with RawFrontend() as frontend, starting(frontend, tiny_model, tmp_path / "log") as engine:
        frontend.take_status()
        frontend.send_init(frame)
        assert engine.wait() == 1
        assert cause in engine.log and "Traceback" not in engine.log


def test_an_input_thread_that_dies_before_ready_fails_the_start(tiny_model: Path, tmp_path: Path) -> None:
    with RawFrontend() as frontend, starting(frontend, tiny_model, tmp_path / "log") as engine:
        frontend.take_status()
        frontend.send_init(init(inputs=["carrier-pigeon://x"], outputs=frontend.addresses.outputs))
        began = time.monotonic()
        assert engine.wait(15) == 1
        assert time.monotonic() - began < 10
        assert "the input thread was not ready" in engine.log and "ZMQError" in engine.log


def test_a_coordinator_is_waited_for_beyond_the_usual_limit(tiny_model: Path, tmp_path: Path) -> None:
    """The limit is half a second here; READY comes when the coordinator has spoken, and not before."""
    with zmq.Context() as context, context.socket(zmq.XPUB) as publisher:
        publisher.setsockopt(zmq.LINGER, 0)
        publisher.bind("tcp://127.0.0.1:*")
        address = publisher.getsockopt_string(zmq.LAST_ENDPOINT)
        hasty = {"executor": "tests.support.saboteurs:HastyExecutor"}
        with (
            RawFrontend(coordinator=(address, address)) as frontend,
            starting(frontend, tiny_model, tmp_path / "log", **hasty) as engine,
        ):
            frontend.take_status()
            frontend.send_init()
            frontend.wait_ready_responses()
            assert publisher.poll(10_000) and publisher.recv() == b"\x01"
            with pytest.raises(TimeoutError):
                frontend.take_status(1.5)
            assert engine.is_alive()
            publisher.send(b"READY")
            frontend.take_status()
            frontend.call("ping")


def test_a_stop_while_a_coordinator_is_waited_for(tiny_model: Path, tmp_path: Path) -> None:
    nobody = f"ipc://{tmp_path}/nobody"
    with (
        RawFrontend(coordinator=(nobody, nobody)) as frontend,
        starting(frontend, tiny_model, tmp_path / "log") as engine,
    ):
        frontend.take_status()
        frontend.send_init()
        frontend.wait_ready_responses()
        engine.process.terminate()
        assert engine.wait(5) == 143
        assert wait_until(lambda: not engine.is_alive())
