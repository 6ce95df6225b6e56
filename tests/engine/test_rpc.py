"""The utility table: exact names, typed arguments, failures that name method and argument."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import Raw

import engine.utilities  # noqa: F401  (fills the table)
from engine.errors import UtilityError
from engine.rpc import UTILITIES, Lane, find


def raw(*values: object) -> list[Raw]:
    return [Raw(msgspec.msgpack.encode(value)) for value in values]


@pytest.mark.parametrize(
    "name", ["__class__", "_step", "shutdown.__call__", "scheduler.requests", "", "ping ", "PING", "x" * 1_000_000]
)
def test_only_exact_names_are_found(name: str) -> None:
    with pytest.raises(UtilityError) as refused:
        find(name)
    assert "is not a utility" in str(refused.value) and len(str(refused.value)) < 1500


def test_the_nearest_names_are_suggested() -> None:
    with pytest.raises(UtilityError, match="did you mean reset_prefix_cache"):
        find("reset_prefix_cach")


def test_defaults_fill_what_was_not_given() -> None:
    assert find("pause_scheduler").decode_args(raw()) == ["abort", True]
    assert find("pause_scheduler").decode_args(raw("keep")) == ["keep", True]
    assert find("reset_prefix_cache").decode_args(raw(True, False)) == [True, False]


@pytest.mark.parametrize(
    ("name", "values", "names"),
    [
        ("pause_scheduler", ["now"], "mode"),
        ("sleep", ["1"], "level"),
        ("shutdown", [None], "timeout_s"),
        ("abort_requests", [[1]], "request_ids"),
        ("reset_prefix_cache", [1], "reset_running_requests"),
    ],
)
def test_a_wrong_type_names_method_and_argument(name: str, values: list[object], names: str) -> None:
    with pytest.raises(UtilityError, match=rf"{name}: argument {names}"):
        find(name).decode_args(raw(*values))


def test_a_wrong_count_says_what_is_taken() -> None:
    with pytest.raises(UtilityError, match=r"takes 0 to 2 arguments \(mode, clear_cache\), got 3"):
        find("pause_scheduler").decode_args(raw("keep", True, 1))
    with pytest.raises(UtilityError, match=r"takes 1 to 2 arguments"):
        find("abort_requests").decode_args(raw())


def test_the_table_holds_what_frontends_and_operators_call() -> None:
    wanted = {
        "describe",
        "ping",
        "stats",
        "requests",
        "get_supported_tasks",
        "pause_scheduler",
        "resume_scheduler",
        "is_scheduler_paused",
        "sleep",
        "wake_up",
        "is_sleeping",
        "reset_prefix_cache",
        "reset_mm_cache",
        "reset_encoder_cache",
        "profile",
        "set_log_level",
        "dump_stacks",
        "shutdown",
        "add_lora",
        "remove_lora",
        "list_loras",
        "pin_lora",
        "collective_rpc",
        "execute_dummy_batch",
        "save_sharded_state",
    }
    assert wanted <= set(UTILITIES)
    instant = {name for name, row in UTILITIES.items() if row.lane is Lane.INSTANT}
    assert instant >= {
        "stats",
        "requests",
        "describe",
        "is_sleeping",
        "is_scheduler_paused",
        "dump_stacks",
        "flight_record",
    }


def test_every_row_describes_itself() -> None:
    for row in UTILITIES.values():
        info = msgspec.convert(
            msgspec.to_builtins(msgspec.msgpack.decode(msgspec.msgpack.encode(row.info()))), type=dict
        )
        assert info["summary"].endswith(".") and info["phases"] and info["lane"] in ("loop", "instant"), info
    choices = {arg.name: arg.choices for arg in UTILITIES["pause_scheduler"].info().args}
    assert choices["mode"] == ["abort", "wait", "keep"]
