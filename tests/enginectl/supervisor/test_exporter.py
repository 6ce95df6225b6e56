from __future__ import annotations

import errno
import http.client
import selectors
import socket
import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from enginectl.errors import Conflict, Refused, UsageError
from enginectl.supervisor import exporter as module
from enginectl.supervisor.exporter import MAX_CONNECTIONS, Exporter, Pages, check_listen, parse_listen, respond
from tests.support.wait import wait_until


@pytest.fixture
def served() -> Iterator[Exporter]:
    exporter = Exporter("127.0.0.1", 0)
    exporter.pages = Pages(b"x 1\n", True, "ok", False, "cordoned", time.monotonic())
    yield exporter
    exporter.close()


def get(exporter: Exporter, path: str, method: str = "GET") -> tuple[int, bytes]:
    client = http.client.HTTPConnection("127.0.0.1", urlsplit(exporter.url).port or 0, timeout=5)
    client.request(method, path)
    answer = client.getresponse()
    found = answer.status, answer.read()
    client.close()
    return found


def test_pages_are_served(served: Exporter) -> None:
    assert get(served, "/metrics") == (200, b"x 1\n")
    assert get(served, "/livez") == (200, b"ok\n")
    assert get(served, "/readyz?verbose") == (503, b"cordoned\n")
    assert get(served, "/etc/passwd")[0] == 404
    assert get(served, "/metrics", "POST")[0] == 405
    assert get(served, "/metrics", "HEAD") == (200, b"")


def test_who_closes_it_waits_for_no_turn_of_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TURN_S", 30.0)
    exporter = Exporter("127.0.0.1", 0)
    assert get(exporter, "/")[0] == 200
    closing = threading.Thread(target=exporter.close, daemon=True)
    closing.start()
    wait_until(lambda: not closing.is_alive(), 15.0, "closed")
    assert not exporter._thread.is_alive()
    with pytest.raises(OSError):
        get(exporter, "/")


def test_pages_that_nobody_renews_are_not_believed() -> None:
    pages = Pages(b"x 1\n", True, "ok", True, "ok", at=100.0)
    assert respond(b"GET /livez HTTP/1.1\r\n\r\n", pages, 101.0).startswith(b"HTTP/1.1 200")
    assert respond(b"GET /livez HTTP/1.1\r\n\r\n", pages, 200.0).startswith(b"HTTP/1.1 503")


@pytest.mark.parametrize("head", [b"", b"GET\r\n\r\n", b"\x16\x03\x01\r\n\r\n", b"GET / FTP\r\n\r\n", b"G" * 9000])
def test_noise_is_a_bad_request(head: bytes) -> None:
    assert respond(head, Pages(), 0.0).startswith(b"HTTP/1.1 400")


def test_silent_and_slow_readers_hold_nobody_up(served: Exporter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DEADLINE_S", 0.5)
    where = ("127.0.0.1", urlsplit(served.url).port or 0)
    silent = [socket.create_connection(where, timeout=5) for _ in range(MAX_CONNECTIONS // 2)]
    silent[0].sendall(b"GET /metr")
    assert get(served, "/livez") == (200, b"ok\n")
    for one in silent:
        assert one.recv(100) == b""  # closed at their deadline
        one.close()


def test_without_a_descriptor_for_a_caller_it_waits_instead_of_spinning(
    served: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float | None] = []
    accept, full = Exporter._accept, [errno.EMFILE, errno.ENFILE, errno.EMFILE]

    def accept_later(exporter: Exporter, selector: selectors.BaseSelector) -> None:
        if full:
            raise OSError(full.pop(), "too many open files")
        accept(exporter, selector)

    monkeypatch.setattr(Exporter, "_accept", accept_later)
    monkeypatch.setattr(served._stop, "wait", waits.append)
    assert get(served, "/livez") == (200, b"ok\n")
    assert waits == [module.FULL_S] * 3


def test_too_many_are_turned_away_and_it_goes_on(served: Exporter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DEADLINE_S", 0.5)
    where = ("127.0.0.1", urlsplit(served.url).port or 0)
    many = [socket.create_connection(where, timeout=5) for _ in range(3 * MAX_CONNECTIONS)]

    def is_served() -> bool:
        try:
            return get(served, "/livez")[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    wait_until(is_served, 10.0, "an answer")
    for one in many:
        one.close()


def test_a_taken_port_is_a_conflict(served: Exporter) -> None:
    with pytest.raises(Conflict, match="cannot listen"):
        Exporter("127.0.0.1", urlsplit(served.url).port or 0)


def test_addresses() -> None:
    assert parse_listen("9100") == ("127.0.0.1", 9100)
    assert parse_listen(":9100") == ("127.0.0.1", 9100)
    assert parse_listen("[::1]:9100") == ("::1", 9100)
    assert parse_listen("localhost:0") == ("127.0.0.1", 0)
    for wrong in ("", "x", "host.example:1", "127.0.0.1:70000", "127.0.0.1:-1", "1.2.3:5"):
        with pytest.raises(UsageError):
            parse_listen(wrong)


def test_others_reach_it_only_when_that_was_asked_for() -> None:
    for address in ("0.0.0.0:9100", "[::]:9100", "10.0.0.1:9100"):
        with pytest.raises(Refused) as caught:
            check_listen(address, allow_remote=False)
        assert "--allow-remote" in caught.value.try_[0]
        assert "names of engine and model" in caught.value.cause
        assert check_listen(address, allow_remote=True)[1] == 9100
