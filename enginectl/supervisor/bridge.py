"""Between an external frontend and the engine: frames pass both ways as they are, read on the side.

Enters: what the link hears from the frontend's clients and what the relay hears from the engine for them. Leaves: the
same frames on the other side. Owns the link and the watchman that speaks for us if we are killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.codec import decode_request
from engine.errors import ProtocolError
from engine.messages import AbortIds, EngineCoreRequest, EngineHandshakeMetadata, UtilityCall
from enginectl import text
from enginectl.addresses import EXPOSED, is_remote
from enginectl.errors import CtlError, UsageError
from enginectl.supervisor.join import FLUSH_S, FrontendLink
from enginectl.supervisor.lastwords import Watchman, Whom

if TYPE_CHECKING:
    from enginectl.supervisor.daemon import Daemon
    from enginectl.supervisor.seats import Seat


class Bridge:
    """One external frontend at a time, at one address."""

    def __init__(self, daemon: Daemon, address: str) -> None:
        self.trouble = ""
        """Why the handshake does not go on, empty when it does."""
        self._daemon = daemon
        self._watchman = Watchman()
        self.link = FrontendLink(daemon.loop, daemon.context, address, daemon.relay.identity, self)
        daemon.relay.passing = self._pass
        daemon.relay.await_clients()
        daemon.traffic.to_client = self._to_client

    def open(self) -> None:
        """Raises UsageError for an address that cannot be one."""
        try:
            self.link.open()
        except ProtocolError as error:
            raise UsageError(str(error), try_=["--join tcp://127.0.0.1:PORT"]) from None

    @property
    def num_clients(self) -> int:
        return len(self.link.clients)

    def text(self) -> str:
        """For people: where, how it stands, and what it exposes."""
        if self.link.is_ready:
            return f"{self.link.address}, {text.count(self.num_clients, 'client')}{self._warning()}"
        if self.link.is_joined:
            return f"{self.link.address}, joined, waiting for the engine"
        return f"{self.link.address}, {self.trouble or 'not there yet'}"

    def _warning(self) -> str:
        addresses = self.link.init.addresses if self.link.init is not None else None
        seen = [self.link.address, *(addresses.inputs if addresses else [])]
        return f"; another machine: {EXPOSED}" if any(map(is_remote, seen)) else ""

    # ------------------------------------------------------------ the frontend

    def on_init(self, init: EngineHandshakeMetadata) -> str:
        addresses, seats = init.addresses, self._daemon.relay.seats
        count = len(addresses.inputs)
        far = [address for address in [*addresses.inputs, *addresses.outputs] if is_remote(address)]
        if far and not self._daemon.settings.allow_remote:
            return (
                f"the frontend has its sockets at {far[0][:100]}, beyond this machine: {EXPOSED}; "
                "let it use 127.0.0.1, or permit that with --allow-remote"
            )
        if addresses.coordinator_input or addresses.coordinator_output:
            return "the frontend has a coordinator (data parallel): an engine behind a supervisor cannot join that"
        if len(seats) > 1 and count > len(seats) - 1:
            return (
                f"the frontend has {count} clients and the running engine seats for {len(seats) - 1}: "
                "restart the engine to give it more"
            )
        return ""

    def on_joined(self, init: EngineHandshakeMetadata) -> None:
        addresses, relay = init.addresses, self._daemon.relay
        count = len(addresses.inputs)
        if len(relay.seats) == 1:
            relay.parallel_config = init.parallel_config or relay.parallel_config
            relay.seat_clients(count)
        self.trouble = ""
        self._watchman.tell(Whom(addresses.outputs, self.link.address, self.link.identity.hex()))
        where = " ".join([*addresses.inputs, *addresses.outputs])[:1000]
        clients = text.count(count, "client")
        self._daemon.events.add("frontend", f"joined at {self.link.address}, {clients}: {where}")
        if relay.is_up:
            self._daemon.loop.soon(self.engine_up)
        self._daemon.changed()

    def on_message(self, client: int, frames: list[bytes]) -> None:
        seat, traffic = self._daemon.relay.seats[client], self._daemon.traffic
        try:
            message = decode_request(frames)
        except ProtocolError as error:
            return self._unreadable(seat, frames, error)
        if isinstance(message, EngineCoreRequest):
            try:
                traffic.add(seat, message, frames)
            except CtlError as error:
                traffic.refuse(client, message.request_id, error)
        elif isinstance(message, AbortIds):
            traffic.abort(seat, message.request_ids, frames)
        elif isinstance(message, UtilityCall):
            traffic.call(seat, message, frames)
        return None

    def _unreadable(self, seat: Seat, frames: list[bytes], error: ProtocolError) -> None:
        """Our own engine answers it. A foreign one may not survive it: there it is answered here, or dropped."""
        daemon = self._daemon
        daemon.on_unreadable(f"client {seat.index}", str(error))
        if daemon.kind.survives_noise:
            try:
                return daemon.relay.send(seat, frames)
            except CtlError:
                pass
        if error.request_id is not None:
            daemon.traffic.refuse(seat.index, error.request_id, CtlError(f"cannot be read: {error}"))
        return None

    def on_gone(self, why: str) -> None:
        self._watchman.tell(Whom())
        self._daemon.events.add("frontend", f"gone from {self.link.address}: {why}; a HELLO waits for the next one")
        self._daemon.traffic.client_gone()
        for seat in self._daemon.relay.seats:
            self._daemon.relay.let_go(seat)
        self._daemon.changed()

    def on_trouble(self, text: str) -> None:
        if text != self.trouble:
            self._daemon.events.add("frontend", text)
        self.trouble = text
        self._daemon.on_join_trouble(text)

    # ------------------------------------------------------------ the engine

    def _pass(self, seat: Seat, frames: list[bytes]) -> None:
        if self._daemon.traffic.is_orphaned(seat, frames):
            return
        if not self.link.send(seat.index, frames):
            self._hold_back(seat)

    def _hold_back(self, seat: Seat) -> None:
        if self._daemon.relay.hold_back(seat):
            self._daemon.loop.after(FLUSH_S, lambda: self._flush(seat))

    def _flush(self, seat: Seat) -> None:
        if self.link.is_closed or self.link.is_clear(seat.index):
            self._daemon.relay.let_go(seat)
        else:
            self._daemon.loop.after(FLUSH_S, lambda: self._flush(seat))

    def _to_client(self, client: int, frames: list[bytes]) -> None:
        """A message of our own, behind those of the engine."""
        if not self.link.send(client, frames):
            self._hold_back(self._daemon.relay.seats[client])

    def engine_up(self) -> None:
        """To a frontend that waits; one that has its engine already hears nothing of another."""
        self.link.ready([seat.response_frame for seat in self._daemon.relay.seats[:-1]])
        if self.link.init is not None:
            self._watchman.tell(Whom(self.link.init.addresses.outputs))
        self._daemon.changed()

    def engine_over(self) -> None:
        """None will come any more: the frontend ends rather than wait for ever."""
        self.link.dead()
        self.link.fail()

    def close(self) -> None:
        self.link.close()
        self._watchman.close()
