"""Addresses of a frontend's sockets: what is one, and whether it leads beyond this machine.

Text comes in, a verdict leaves; nothing is looked up and nothing is connected."""

from __future__ import annotations

from enginectl.errors import Refused, UsageError

EXPOSED = "prompts and outputs pass in clear, and nothing proves who is there: whoever answers drives this engine"
MAX_PORT = 65535


def is_remote(address: str) -> bool:
    """Whether it may lead to another machine: anything but ipc and the loopback interface. A name is not looked up."""
    if not address.startswith("tcp://"):
        return False
    import ipaddress  # not at the top: every command reads settings

    host = _split(address)[0]
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"


def check_join(address: str, *, allow_remote: bool) -> None:
    """Raises UsageError for what is no address, Refused for another machine's unless that was asked for."""
    if address.startswith("ipc://") and len(address) > len("ipc://"):
        return
    host, port = _split(address)
    if not (address.startswith("tcp://") and host and port.isdigit() and 0 < int(port) <= MAX_PORT):
        raise UsageError(f"--join {address!r} is no address", try_=["--join tcp://127.0.0.1:PORT"])
    if is_remote(address) and not allow_remote:
        raise Refused(
            f"--join {address} leads beyond this machine",
            cause=EXPOSED,
            try_=[f"--join tcp://127.0.0.1:{port}, the near end of an ssh tunnel", "--allow-remote"],
        )


def _split(address: str) -> tuple[str, str]:
    """(host, port); an IPv6 host without its brackets."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    return host.removeprefix("[").removesuffix("]"), port
