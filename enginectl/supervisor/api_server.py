"""The API server of a command that was split: a foreign frontend that is ours to start, watch and end.

Owns its guarded process and the port where it meets its engine. It ends with the supervisor; when it ends by itself it
is started again where the restart policy allows, without touching the engine; otherwise the whole has failed."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

from engine.messages import EngineCoreReadyResponse
from enginectl.settings import EngineSettings
from enginectl.supervisor import vllm
from enginectl.supervisor.child import Child, StatusLine, bury
from enginectl.supervisor.loop import Future
from enginectl.supervisor.policy import Restart, decide

if TYPE_CHECKING:
    from enginectl.supervisor.daemon import Daemon

LOOK_S = 0.3
CONNECT_S = 0.2
END_S = 8.0
"""It gets as long to end by itself at the engine's death notice, then its guard ends it."""


def free_port() -> int:
    """A port of the loopback interface that nobody has now. vLLM takes a number only, so somebody may be faster."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ApiServer:
    def __init__(self, daemon: Daemon, settings: EngineSettings) -> None:
        self.serves = False
        self.child: Child | None = None
        self.restarts = 0
        self._daemon = daemon
        self._port = free_port()
        self._http_port = settings.http_port
        self._began: list[float] = []
        self._is_ending = False

    @property
    def handshake_address(self) -> str:
        return f"tcp://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Once; again only after it ended."""
        if self.child is not None or self._is_ending:
            return
        settings = self._daemon.settings
        command = vllm.frontend_command(settings, self._port)
        child = self.child = Child(self._daemon.loop, lambda _: None, self._daemon.on_engine_log)
        child.run(lambda _, death_fd: vllm.guarded(command, death_fd, settings.term_s), vllm.environment(settings))
        self._began.append(time.monotonic())
        self._daemon.events.add("spawn", f"API server pid {child.pid}")
        self._daemon.loop.spawn(self._watch(child))

    async def serve(self, response: EngineCoreReadyResponse) -> None:
        """The engine is up: passes READY on and waits until HTTP is served; then the start is complete."""
        daemon, ready = self._daemon, self._daemon.became_ready
        daemon.tracker.on_line(StatusLine(phase="serve", event="begin"))
        if daemon.bridge is not None:
            daemon.bridge.engine_up()
        await self._until_served(ready)
        ready.set_result(response)

    async def _until_served(self, given_up: Future[EngineCoreReadyResponse]) -> None:
        daemon = self._daemon
        while not (self._is_ending or given_up.done or daemon.engine_exit.done):
            if self._http_port is None or self._is_listening():
                self.serves = True
                daemon.http = "" if self._http_port is None else f"http://127.0.0.1:{self._http_port}"
                return
            await daemon.loop.sleep(LOOK_S)

    def _is_listening(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self._http_port or 0), CONNECT_S):
                return True
        except OSError:
            return False

    async def _watch(self, child: Child) -> None:
        daemon, status = self._daemon, await child.exited
        self.serves, daemon.http = False, ""
        await bury(daemon.loop, child, daemon.settings.term_s)
        child.close()
        self.child = None
        if self._is_ending or daemon.stopping is not None or daemon.engine_exit.done:
            return
        now = time.monotonic()
        choice = decide(daemon.settings.restart, self._began[1:], now, now - self._began[-1])
        daemon.events.add("frontend", f"the API server ended: {status}")
        if not daemon.became_ready.done or not isinstance(choice, Restart):
            daemon.tracker.error = f"the API server ended: {status}"
            if daemon.child is not None:
                daemon.loop.spawn(self._end_engine(daemon.child))
            return
        await daemon.loop.sleep(choice.delay_s)
        self.restarts += 1
        self.start()
        await self._until_served(Future())
        daemon.changed()

    async def _end_engine(self, child: Child) -> None:
        """Nobody can reach it any more."""
        await bury(self._daemon.loop, child, self._daemon.settings.term_s)

    async def end(self) -> None:
        """With the supervisor. Returns when its group is gone."""
        self._is_ending = True
        child = self.child
        if child is None:
            return
        if self.serves:
            await self._daemon.loop.first(child.exited, timeout_s=END_S)
        await bury(self._daemon.loop, child, self._daemon.settings.term_s)
        child.close()
