"""A bare pyzmq frontend for tests: binds handshake, input and output sockets, and is as strict as the real one.

    with RawFrontend(tmp_path) as frontend:
        engine = start_an_engine(frontend.handshake_address)
        frontend.wait_ready()
        frontend.add("a", [1, 2, 3], max_tokens=4)
        assert frontend.collect("a").finish_reason == FinishReason.LENGTH

One thread uses it; every wait has a deadline and raises TimeoutError, or EngineDeadError when the engine says so.
FrontendBroken is raised wherever the real frontend would go down: a second HELLO, READY before HELLO, a wrong `local`
or `headless`, a call id that is unknown or answered twice, an output that cannot be decoded."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import msgspec
import zmq

from engine import codec
from engine.codec import Dialect
from engine.errors import EngineDeadError, ProtocolError
from engine.messages import (
    AbortIds,
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreReadyResponse,
    EngineCoreRequest,
    EngineDead,
    EngineHandshakeMetadata,
    EngineZmqAddresses,
    FinishReason,
    HandshakeStatus,
    SamplingParams,
    SchedulerStats,
    UtilityCall,
    UtilityOutput,
)

TIMEOUT_S = 30.0


class FrontendBroken(AssertionError):
    """The engine did something that takes a real frontend down."""


@dataclass
class Generation:
    """What has come for one request."""

    request_id: str
    client: int
    token_ids: list[int] = field(default_factory=list)
    outputs: list[EngineCoreOutput] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    num_finals: int = 0
    """More than 1 is an engine's bug; the real frontend ignores it, tests should not."""

    @property
    def is_finished(self) -> bool:
        return self.finish_reason is not None

    def take(self, output: EngineCoreOutput) -> None:
        self.outputs.append(output)
        self.token_ids += output.new_token_ids
        if output.finish_reason is not None:
            self.finish_reason = FinishReason(output.finish_reason)
            self.stop_reason = output.stop_reason
            self.num_finals += 1


class RawFrontend:
    """`directory` given: ipc sockets in it (keep the path short); else tcp on free ports of `host`."""

    def __init__(
        self,
        directory: Path | None = None,
        *,
        num_clients: int = 1,
        dialect: Dialect = Dialect.V025,
        is_local: bool = False,
        engine_index: int = 0,
        coordinator: tuple[str, str] | None = None,
        read_outputs: bool = True,
        output_hwm: int = 0,
        handshake: str | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        """`coordinator`: (input, output) addresses for INIT. `read_outputs` False: never reads outputs by itself.
        `handshake`: exactly that address, as after a restart."""
        self.dialect = dialect
        self.is_local = is_local
        self.identity = engine_index.to_bytes(2, "little")
        self.ready_responses: dict[int, EngineCoreReadyResponse] = {}
        self.generations: dict[str, Generation] = {}
        self.stats: SchedulerStats | None = None
        """The newest, from whichever client got it."""
        self.dead_clients: set[int] = set()
        """Who has been told ENGINE_CORE_DEAD."""
        self.messages: list[tuple[int, EngineCoreOutputs]] = []
        self._directory = directory
        self._host = host
        self._read_outputs = read_outputs
        self._statuses: list[HandshakeStatus] = []
        self._answers: dict[int, UtilityOutput] = {}
        self._asked: dict[int, int] = {}
        self._call_ids = itertools.count(2**63 + 17)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._handshake, self.handshake_address = self._bind(zmq.ROUTER, "h", address=handshake)
        pairs = [self._bind(zmq.ROUTER, f"i{client}") for client in range(num_clients)]
        self._inputs = [socket for socket, _ in pairs]
        outs = [self._bind(zmq.PULL, f"o{client}", output_hwm) for client in range(num_clients)]
        self._outputs = [socket for socket, _ in outs]
        self.addresses = EngineZmqAddresses(
            inputs=[address for _, address in pairs],
            outputs=[address for _, address in outs],
            coordinator_input=coordinator[0] if coordinator else None,
            coordinator_output=coordinator[1] if coordinator else None,
        )

    def __enter__(self) -> RawFrontend:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._context.destroy(linger=0)

    def _bind(self, kind: int, name: str, hwm: int = 0, address: str | None = None) -> tuple[zmq.Socket[bytes], str]:
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.SNDHWM, 0)
        socket.setsockopt(zmq.RCVHWM, hwm)
        if kind == zmq.ROUTER:
            socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        socket.setsockopt(zmq.IPV6, self._host.startswith("["))
        here = f"tcp://{self._host}:*" if self._directory is None else f"ipc://{self._directory}/{name}"
        socket.bind(address or here)
        return socket, socket.getsockopt_string(zmq.LAST_ENDPOINT)

    # ------------------------------------------------------------ start

    def init_frame(self) -> bytes:
        return codec.encode_message(EngineHandshakeMetadata(self.addresses))

    def take_status(self, timeout_s: float = TIMEOUT_S) -> HandshakeStatus:
        """Waits for HELLO or READY, whichever is due, and checks it as the real frontend does."""
        if not self._handshake.poll(int(timeout_s * 1000)):
            raise TimeoutError(f"no {'READY' if self._statuses else 'HELLO'} within {timeout_s} s")
        identity, frame = self._handshake.recv_multipart()
        status = codec.decode_status(frame)
        expected = "READY" if self._statuses else "HELLO"
        if identity != self.identity or status.status != expected or len(self._statuses) > 1:
            raise FrontendBroken(f"{status.status} from {identity!r} where {expected} was due")
        if status.local != self.is_local or status.headless == self.is_local:
            raise FrontendBroken(f"{status}: wrong local or headless")
        self._statuses.append(status)
        return status

    def send_init(self, frame: bytes | None = None) -> None:
        """INIT, or any other bytes in its place."""
        self._handshake.send_multipart([self.identity, self.init_frame() if frame is None else frame])

    def wait_ready(self, timeout_s: float = TIMEOUT_S) -> EngineCoreReadyResponse:
        """HELLO, INIT, ready responses on every input, READY."""
        end = time.monotonic() + timeout_s
        self.take_status(timeout_s)
        self.send_init()
        self.wait_ready_responses(end - time.monotonic())
        self.take_status(max(0.0, end - time.monotonic()))
        return self.ready_responses[0]

    def wait_ready_responses(self, timeout_s: float = TIMEOUT_S) -> None:
        """For engines of which only the IO threads run: no handshake."""
        end = time.monotonic() + timeout_s
        for client, socket in enumerate(self._inputs):
            if not socket.poll(max(0, int((end - time.monotonic()) * 1000))):
                raise TimeoutError(f"no ready response on input {client} within {timeout_s} s")
            identity, frame = socket.recv_multipart()
            if identity != self.identity:
                raise FrontendBroken(f"ready response from {identity!r}")
            self.ready_responses[client] = codec.decode_ready_response(frame)

    # ------------------------------------------------------------ asking

    def send_frames(self, frames: Sequence[bytes], client: int = 0) -> None:
        """Any frames, as they are."""
        self._inputs[client].send_multipart([self.identity, *frames])

    def send_request(self, request: EngineCoreRequest, client: int | None = None) -> Generation:
        seat = request.client_index if client is None else client
        self.generations[request.request_id] = Generation(request.request_id, request.client_index)
        self.send_frames(codec.encode_request(request, self.dialect), seat)
        return self.generations[request.request_id]

    def add(
        self,
        request_id: str,
        prompt_token_ids: list[int] | None,
        *,
        client: int = 0,
        priority: int = 0,
        sampling: SamplingParams | None = None,
        max_tokens: int | None = 16,
        **sampling_fields: object,
    ) -> Generation:
        """Greedy unless `sampling` or its fields say otherwise. A used id starts afresh."""
        fields: dict[str, object] = {"temperature": 0.0, "max_tokens": max_tokens, **sampling_fields}
        params = sampling or SamplingParams(**fields)  # type: ignore[arg-type]
        request = EngineCoreRequest(
            request_id,
            prompt_token_ids,
            sampling_params=params,
            arrival_time=time.time(),
            client_index=client,
            priority=priority,
            external_req_id=request_id,
        )
        return self.send_request(request)

    def abort(self, request_ids: Iterable[str], client: int = 0) -> None:
        self.send_frames(codec.encode_request(AbortIds(list(request_ids))), client)

    def ask(self, method: str, *args: object, client: int = 0) -> int:
        """Sends a utility call; answer(call_id) waits for what comes back."""
        call_id = next(self._call_ids)
        call = UtilityCall(client, call_id, method, [codec.encode_value(arg) for arg in args])
        self._asked[call_id] = client
        self.send_frames(codec.encode_request(call), client)
        return call_id

    def expect_answer(self, call_id: int, client: int = 0) -> None:
        """For a call sent with send_frames."""
        self._asked[call_id] = client

    def answer(self, call_id: int, timeout_s: float = TIMEOUT_S) -> UtilityOutput:
        self.pump(lambda: call_id in self._answers, timeout_s, f"an answer to call {call_id}")
        return self._answers[call_id]

    def call(self, method: str, *args: object, client: int = 0, timeout_s: float = TIMEOUT_S) -> object:
        """The plain result. Raises RuntimeError with the failure message."""
        output = self.answer(self.ask(method, *args, client=client), timeout_s)
        if output.failure_message is not None or output.result is None:
            raise RuntimeError(output.failure_message)
        return msgspec.msgpack.decode(output.result.value)

    # ------------------------------------------------------------ reading

    def collect(self, request_id: str, timeout_s: float = TIMEOUT_S) -> Generation:
        """Until its final output."""
        found = self.generations[request_id]
        self.pump(lambda: found.is_finished, timeout_s, f"the end of {request_id}")
        return found

    def collect_all(self, request_ids: Iterable[str], timeout_s: float = TIMEOUT_S) -> list[Generation]:
        wanted = [self.generations[request_id] for request_id in request_ids]
        self.pump(lambda: all(one.is_finished for one in wanted), timeout_s, f"the end of {len(wanted)} requests")
        return wanted

    def wait_dead(self, timeout_s: float = TIMEOUT_S) -> None:
        """Until every client has been told ENGINE_CORE_DEAD."""
        end = time.monotonic() + timeout_s
        while len(self.dead_clients) < len(self._outputs):
            if time.monotonic() > end:
                raise TimeoutError(f"only clients {sorted(self.dead_clients)} heard ENGINE_CORE_DEAD")
            self.read_some(0.1)

    def pump(self, until: Callable[[], bool], timeout_s: float = TIMEOUT_S, what: str = "a condition") -> None:
        """Reads outputs until a condition holds. Raises TimeoutError, or EngineDeadError when it can no longer hold."""
        end = time.monotonic() + timeout_s
        while not until():
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"not within {timeout_s} s: {what}")
            self.read_some(min(left, 0.5))
            if self.dead_clients and not until():
                raise EngineDeadError(f"ENGINE_CORE_DEAD while waiting for {what}")

    def read_some(self, timeout_s: float = 0.0) -> int:
        """Reads whatever has come, waiting at most timeout_s for the first. Returns how many messages."""
        poller = zmq.Poller()
        for socket in self._outputs if self._read_outputs else []:
            poller.register(socket, zmq.POLLIN)
        ready = dict(poller.poll(int(timeout_s * 1000)))
        count = 0
        for client, socket in enumerate(self._outputs):
            while socket in ready and socket.poll(0):
                self._take(socket.recv_multipart(), client)
                count += 1
        return count

    def recv_output(self, client: int = 0, timeout_s: float = TIMEOUT_S) -> list[bytes]:
        """The frames of one message, undecoded and unaccounted for."""
        if not self._outputs[client].poll(int(timeout_s * 1000)):
            raise TimeoutError(f"no output for client {client} within {timeout_s} s")
        return self._outputs[client].recv_multipart()

    def _take(self, frames: list[bytes], client: int) -> None:
        try:
            message = codec.decode_outputs(frames, self.dialect)
        except ProtocolError as error:
            raise FrontendBroken(f"an output that cannot be decoded: {error}") from error
        if isinstance(message, EngineDead):
            self.dead_clients.add(client)
            return
        self.messages.append((client, message))
        self.stats = message.scheduler_stats or self.stats
        if message.utility_output is not None:
            self._take_answer(message.utility_output, client)
        for output in message.outputs:
            if output.request_id in self.generations:
                self.generations[output.request_id].take(output)

    def _take_answer(self, answer: UtilityOutput, client: int) -> None:
        if answer.call_id in self._answers:
            raise FrontendBroken(f"call {answer.call_id} is answered twice")
        if self._asked.get(answer.call_id) != client:
            raise FrontendBroken(f"client {client} got an answer to call {answer.call_id}, which it did not make")
        self._answers[answer.call_id] = answer
