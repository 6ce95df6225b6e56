from __future__ import annotations

import pytest

from enginectl.addresses import check_join, is_remote
from enginectl.errors import Refused, UsageError

NEAR = ["tcp://127.0.0.1:5", "tcp://127.0.0.2:5", "tcp://[::1]:5", "tcp://::1:5", "tcp://localhost:5", "ipc:///run/x"]
FAR = ["tcp://10.0.0.7:5", "tcp://0.0.0.0:5", "tcp://[fe80::1]:5", "tcp://host.example:5", "tcp://localhost.evil:5"]


@pytest.mark.parametrize("address", NEAR)
def test_what_stays_on_this_machine(address: str) -> None:
    assert not is_remote(address)
    check_join(address, allow_remote=False)


@pytest.mark.parametrize("address", FAR)
def test_what_may_leave_it_needs_to_be_permitted(address: str) -> None:
    assert is_remote(address)
    with pytest.raises(Refused) as caught:
        check_join(address, allow_remote=False)
    assert "pass in clear" in caught.value.cause and "--allow-remote" in caught.value.try_
    check_join(address, allow_remote=True)


@pytest.mark.parametrize("text", ["127.0.0.1:5", "tcp://127.0.0.1", "tcp://:5", "tcp://h:0", "tcp://h:99999", "ipc://"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(UsageError, match="is no address"):
        check_join(text, allow_remote=True)
