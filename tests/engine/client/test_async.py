"""AsyncMPClient against real engines: what it gives, and that no task waits for a dead one."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
import pytest

from engine.client import (
    AsyncMPClient,
    AsyncStream,
    DeadlineError,
    EngineDeadError,
    EngineStartError,
    FinishReason,
    RequestRefused,
    SamplingParams,
    UtilityError,
    new_request,
)
from engine.messages import EngineCoreRequest
from engine.reports import EngineStats, RequestTable
from tests.engine.client.conftest import Configure, engine_children
from tests.support.wait import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("sockets")]
DEAD_WITHIN_S = 10.0


def request(name: str | None = None, max_tokens: int = 4) -> EngineCoreRequest:
    params = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)
    return new_request([1, 2, 3], params, request_id=name)


async def tokens_of(stream: AsyncStream) -> list[int]:
    return [token async for output in stream for token in output.new_token_ids]


async def until(condition: Callable[[], Awaitable[bool]], timeout_s: float = 10.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not await condition():
            await asyncio.sleep(0.02)


def test_streams_calls_and_aborts(configure: Configure) -> None:
    async def main() -> None:
        async with AsyncMPClient(configure("Slow")) as client:
            assert client.ready.num_gpu_blocks == 1024
            counts = await asyncio.gather(
                *(tokens_of(client.stream(request(f"r{n}", 2 + n), timeout_s=20)) for n in range(8))
            )
            assert [len(tokens) for tokens in counts] == [2 + n for n in range(8)]
            assert await client.add(request("later", 3)) == "later"
            assert len(await tokens_of(client.stream("later", timeout_s=20))) == 3
            hog = client.stream(request("hog", 1000), timeout_s=20)
            await anext(hog)
            with pytest.raises(RequestRefused, match="in use"):
                await client.add(request("hog"))
            await client.abort("hog")
            last = [output async for output in hog][-1]
            assert last.finish_reason == FinishReason.ABORT
            assert (await client.call("requests", result_type=RequestTable)).total == 0
            with pytest.raises(UtilityError, match="no_such"):
                await client.call("no_such")

    asyncio.run(main())


def test_a_stream_left_early_is_aborted(configure: Configure) -> None:
    async def main() -> None:
        async with AsyncMPClient(configure("Slow")) as client:

            async def nothing_left() -> bool:
                return (await client.call("requests", result_type=RequestTable)).total == 0

            stream = client.stream(request("x", 1000), timeout_s=20)
            await anext(stream)
            await stream.aclose()
            await until(nothing_left)
            reader = asyncio.create_task(tokens_of(client.stream(request("y", 1000))))
            await until(lambda: asyncio.sleep(0, client.num_live == 1))
            reader.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reader
            del reader
            await until(nothing_left)

    asyncio.run(main())


def test_a_stream_that_is_closed_elsewhere_frees_its_reader_and_its_id(configure: Configure) -> None:
    async def main() -> None:
        async with AsyncMPClient(configure("Slow")) as client:
            await client.call("pause_scheduler", "keep")
            stream = client.stream(request("x"))
            reader = asyncio.create_task(tokens_of(stream))
            await until(lambda: asyncio.sleep(0, client.num_live == 1))
            await stream.aclose()
            async with asyncio.timeout(10):
                assert await reader == []
            again = client.stream(request("x", 3), timeout_s=20)
            await client.call("resume_scheduler")
            assert len(await tokens_of(again)) == 3

    asyncio.run(main())


def test_deadlines(configure: Configure) -> None:
    async def main() -> None:
        async with AsyncMPClient(configure("Slow")) as client:
            await client.call("pause_scheduler", "keep")
            with pytest.raises(DeadlineError, match=r"x: no output within 0.2 s"):
                await anext(client.stream(request("x", 2), timeout_s=0.2))
            await client.call("resume_scheduler")
            with pytest.raises(DeadlineError, match="utility ping"):
                await client.call("ping", timeout_s=0.0)
            assert "loop_counter" in await client.call("ping", result_type=dict[str, int])

    asyncio.run(main())


def test_shutdown_drains(configure: Configure) -> None:
    async def main() -> None:
        client = AsyncMPClient(configure("Slow"))
        await client.start()
        await client.add(request("x", 20))
        await client.shutdown(timeout_s=20)
        outputs = [output async for output in client.stream("x")]
        assert outputs[-1].finish_reason == FinishReason.LENGTH
        await client.shutdown()
        await client.close()

    asyncio.run(main())


@pytest.mark.parametrize("action", ["stream", "call", "shutdown"])
def test_a_kill_frees_who_waits(configure: Configure, action: str) -> None:
    async def main() -> None:
        async with AsyncMPClient(configure("Slow")) as client:
            actions: dict[str, Callable[[], Awaitable[object]]] = {
                "stream": lambda: tokens_of(client.stream(request("x", 1500))),
                "call": lambda: client.call("pause_scheduler", "wait", timeout_s=60),
                "shutdown": lambda: client.shutdown(timeout_s=60),
            }

            async def has_stepped() -> bool:
                return (await client.call("stats", result_type=EngineStats)).step_counter > 3

            await client.add(request("running", 1500))
            await until(has_stepped)  # a pause that finds nothing begun has nothing to wait for
            waiting = asyncio.ensure_future(actions[action]())
            await until(has_stepped)
            os.kill(client.pid, signal.SIGKILL)
            with pytest.raises(EngineDeadError):
                await asyncio.wait_for(waiting, DEAD_WITHIN_S)

    asyncio.run(main())


def test_nobody_comes_to_a_dead_engine(configure: Configure) -> None:
    async def main() -> None:
        client = AsyncMPClient(configure("Slow"))
        await client.start()
        await client.add(request("x", 1000))
        os.kill(client.pid, signal.SIGKILL)
        await until(lambda: asyncio.sleep(0, not client.is_alive), DEAD_WITHIN_S)
        attempts: list[Callable[[], Awaitable[object]]] = [
            lambda: client.add(request()),
            lambda: client.abort("x"),
            lambda: client.call("ping"),
            lambda: tokens_of(client.stream("x")),
            client.shutdown,
        ]
        for attempt in attempts:
            with pytest.raises(EngineDeadError, match="was killed by SIGKILL"):
                await attempt()
        with pytest.raises(EngineDeadError):
            client.stream(request())

    asyncio.run(main())


def test_a_stopped_engine_is_closed(configure: Configure, sockets: Path) -> None:
    async def main() -> int:
        client = AsyncMPClient(configure("Slow"))
        await client.start()
        await client.add(request("x", 1000))
        os.kill(client.pid, signal.SIGSTOP)
        await asyncio.wait_for(client.close(), 3.0)
        return client.pid

    assert not psutil.pid_exists(asyncio.run(main()))
    assert list(sockets.iterdir()) == []


def test_a_cancelled_start_leaves_nothing(configure: Configure, sockets: Path) -> None:
    async def main() -> None:
        client = AsyncMPClient(configure("NeverLoads"))
        starting = asyncio.create_task(client.start())
        await until(lambda: asyncio.sleep(0, bool(engine_children())))
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert list(sockets.iterdir()) == [] and engine_children() == []
        await client.close()

    asyncio.run(main())


def test_a_failed_start_says_why(configure: Configure, tmp_path: Path) -> None:
    async def main() -> None:
        client = AsyncMPClient(configure(model=str(tmp_path)))
        with pytest.raises(EngineDeadError, match="not been started"):
            await client.add(request())
        with pytest.raises(EngineStartError, match="load weights"):
            await client.start()

    asyncio.run(main())


def test_a_loop_that_ends_first_does_no_harm(configure: Configure) -> None:
    client = AsyncMPClient(configure("Slow"))

    async def main() -> None:
        await client.start()
        await client.add(request("x", 1000))

    asyncio.run(main())
    pid = client.pid
    asyncio.run(client.close())
    wait_until(lambda: not psutil.pid_exists(pid), 3.0, "the engine is gone")
