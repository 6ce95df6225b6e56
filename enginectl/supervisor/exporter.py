"""Metrics and probes over HTTP: pages that the supervisor's loop made last go out, nothing comes in.

Owns one thread and one listening socket; shares a frozen Pages value with the loop, so a slow or hostile reader never
touches the relay. Every connection has a deadline and a size limit; there are at most MAX_CONNECTIONS. Ends by
close(), at once."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import selectors
import socket
import threading
import time
from dataclasses import dataclass, field
from http import HTTPStatus

from enginectl.errors import Conflict, Refused, UsageError
from enginectl.supervisor.exposition import CONTENT_TYPE

DEADLINE_S = 5.0
TURN_S = 0.5
FULL_S = 0.2
"""Without a descriptor for it a caller stays in the queue, which would wake the thread again at once."""
FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
MAX_CONNECTIONS = 32
MAX_HEAD_BYTES = 8192
STALE_S = 15.0
"""Pages that the loop has not renewed for so long: the supervisor itself hangs."""
PLAIN = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Pages:
    """What is served. `is_live`, `is_ready` with a line that says why not."""

    metrics: bytes = b""
    is_live: bool = False
    live_line: str = ""
    is_ready: bool = False
    ready_line: str = ""
    at: float = 0.0
    """Monotonic, s."""


def parse_listen(text: str) -> tuple[str, int]:
    """`9100`, `:9100`, `127.0.0.1:9100`, `[::1]:9100`, `localhost:0`. Raises UsageError; no name is ever looked up."""
    host, _, port = text.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    host = "127.0.0.1" if host == "localhost" else host
    try:
        ipaddress.ip_address(host)
        if not port.isdecimal() or int(port) > 65535:
            raise ValueError(f"no port {port!r}")
    except ValueError as error:
        raise UsageError(f"not an address to listen on: {text!r}", cause=str(error), try_=["--listen 9100"]) from None
    return host, int(port)


def check_listen(text: str, *, allow_remote: bool) -> tuple[str, int]:
    """Raises Refused for an address that others can reach, unless that was asked for."""
    host, port = parse_listen(text)
    if not ipaddress.ip_address(host).is_loopback and not allow_remote:
        raise Refused(
            f"{text} can be reached from other machines, and nothing here asks who they are",
            cause="whoever reaches it sees the names of engine and model, and counts and times of all requests",
            try_=[f"--listen {text} --allow-remote", f"--listen {port}"],
        )
    return host, port


class Exporter:
    """Made and closed by the supervisor's loop."""

    def __init__(self, host: str, port: int) -> None:
        """Raises Conflict when the address cannot be had."""
        self.pages = Pages(at=time.monotonic())
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._server = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._server.bind((host, port))
            self._server.listen(MAX_CONNECTIONS)
        except OSError as error:
            self._server.close()
            raise Conflict(f"cannot listen on {host}:{port}", cause=error.strerror or str(error)) from None
        self._server.setblocking(False)
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._server.getsockname()[1]}/metrics"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)  # wakes the thread: whoever closes relays meanwhile
        self._thread.join(2 * TURN_S)

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._server, selectors.EVENT_READ)
            while not self._stop.is_set():
                for key, _ in selector.select(TURN_S):
                    try:
                        self._accept(selector) if key.data is None else self._serve(selector, key.data)
                    except OSError as error:
                        _drop(selector, key.data)
                        if key.data is None and error.errno in FULL:
                            self._stop.wait(FULL_S)
                _drop_overdue(selector)
            for key in list(selector.get_map().values()):
                key.fileobj.close()  # type: ignore[union-attr]

    def _accept(self, selector: selectors.BaseSelector) -> None:
        connection, _ = self._server.accept()
        if len(selector.get_map()) > MAX_CONNECTIONS:
            connection.close()
            return
        connection.setblocking(False)
        selector.register(connection, selectors.EVENT_READ, Conversation(connection))

    def _serve(self, selector: selectors.BaseSelector, talk: Conversation) -> None:
        """Reads the head, then writes the answer as the reader takes it."""
        if not talk.answer:
            data = talk.connection.recv(MAX_HEAD_BYTES)
            talk.head += data
            if not data:
                return _drop(selector, talk)
            if b"\r\n\r\n" not in talk.head and len(talk.head) <= MAX_HEAD_BYTES:
                return None
            talk.answer = respond(talk.head, self.pages, time.monotonic())
            selector.modify(talk.connection, selectors.EVENT_WRITE, talk)
        talk.answer = talk.answer[talk.connection.send(talk.answer) :]
        if not talk.answer:
            _drop(selector, talk)
        return None


@dataclass(slots=True)
class Conversation:
    """One connection: its request so far, what is still to be sent."""

    connection: socket.socket
    head: bytes = b""
    answer: bytes = b""
    began: float = field(default_factory=time.monotonic)


def _drop(selector: selectors.BaseSelector, talk: Conversation | None) -> None:
    if talk is not None and talk.connection.fileno() >= 0:
        selector.unregister(talk.connection)
        talk.connection.close()


def _drop_overdue(selector: selectors.BaseSelector) -> None:
    now = time.monotonic()
    talks = [key.data for key in selector.get_map().values() if key.data is not None]
    for talk in talks:
        if now - talk.began > DEADLINE_S:
            _drop(selector, talk)


def respond(head: bytes, pages: Pages, now: float) -> bytes:
    """The whole answer to one request head."""
    words = head.split(b"\r\n", 1)[0].split()
    if len(head) > MAX_HEAD_BYTES or len(words) != 3 or not words[2].startswith(b"HTTP/"):
        return _http(HTTPStatus.BAD_REQUEST, b"not a request\n")
    if words[0] not in (b"GET", b"HEAD"):
        return _http(HTTPStatus.METHOD_NOT_ALLOWED, b"GET only\n")
    status, body, kind = _page(words[1].split(b"?", 1)[0], pages, now)
    return _http(status, body, kind, with_body=words[0] == b"GET")


def _page(path: bytes, pages: Pages, now: float) -> tuple[HTTPStatus, bytes, str]:
    age_s = now - pages.at
    if path in (b"/metrics", b"/livez", b"/readyz") and age_s > STALE_S:
        text = f"the supervisor's loop has not turned for {age_s:.0f} s\n"
        return HTTPStatus.SERVICE_UNAVAILABLE, text.encode(), PLAIN
    match path:
        case b"/metrics":
            return HTTPStatus.OK, pages.metrics, CONTENT_TYPE
        case b"/livez":
            return _judged(pages.is_live, pages.live_line)
        case b"/readyz":
            return _judged(pages.is_ready, pages.ready_line)
        case b"/":
            return HTTPStatus.OK, b"/metrics\n/livez\n/readyz\n", PLAIN
        case _:
            return HTTPStatus.NOT_FOUND, b"/metrics, /livez and /readyz are here\n", PLAIN


def _judged(is_ok: bool, line: str) -> tuple[HTTPStatus, bytes, str]:
    status = HTTPStatus.OK if is_ok else HTTPStatus.SERVICE_UNAVAILABLE
    return status, line.encode("utf-8", "replace") + b"\n", PLAIN


def _http(status: HTTPStatus, body: bytes, kind: str = PLAIN, *, with_body: bool = True) -> bytes:
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (body if with_body else b"")
