"""Names of users without a wait."""

from __future__ import annotations

import os
import pwd
import threading
from collections.abc import Iterator

import pytest

from enginectl.supervisor.usernames import MAX_NAMES, UserNames
from tests.support.wait import wait_until


class Service:
    """Answers once it may. `asked`: for whom, and by which thread."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self.asked: list[tuple[int, threading.Thread]] = []

    def __call__(self, uid: int) -> str:
        self.asked.append((uid, threading.current_thread()))
        assert self.may_answer.wait(30.0)
        if uid == 7:
            raise KeyError(uid)
        return f"user{uid}"


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service()
    yield made
    made.may_answer.set()


def test_a_service_that_does_not_answer_is_not_waited_for(service: Service) -> None:
    users = UserNames(service)
    assert [users.of(5), users.of(5), users.of(7)] == ["uid 5", "uid 5", "uid 7"]
    service.may_answer.set()
    wait_until(lambda: users.of(5) == "user5", 10.0, "the name")
    for _, thread in service.asked:
        thread.join(10.0)
    assert users.of(7) == "uid 7"
    assert sorted(uid for uid, _ in service.asked) == [5, 7]
    assert all(thread is not threading.main_thread() and thread.daemon for _, thread in service.asked)


def test_only_so_many_are_asked_for(service: Service) -> None:
    users = UserNames(service)
    for uid in range(2 * MAX_NAMES):
        assert users.of(uid) == f"uid {uid}"
    assert len(users._names) == MAX_NAMES


def test_the_systems_own_word() -> None:
    users = UserNames()
    name = pwd.getpwuid(os.getuid()).pw_name
    wait_until(lambda: users.of(os.getuid()) == name, 30.0, "the name")
