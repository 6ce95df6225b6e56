from __future__ import annotations

from pathlib import Path

from enginectl.log_reader import end_of, follow, last_lines

MARK = "--- enginectl: instance abc 2026-01-01T00:00:00\n"


def test_lines_of_one_start(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    (tmp_path / "engine.log.1").write_text(f"{MARK}old 1\nold 2\n{MARK}first 1\n")
    log.write_text(f"first 2\n{MARK}second 1\nsecond 2\nsecond 3")
    assert last_lines(log, 100) == ["second 1", "second 2", "second 3"]
    assert last_lines(log, 2) == ["second 2", "second 3"]
    assert last_lines(log, 100, back=1) == ["first 1", "first 2"]
    assert last_lines(log, 0) == []
    assert last_lines(tmp_path / "none.log", 5) == []


def test_a_log_without_marks_is_one_start(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_bytes(b"a\nb\xff\n")
    assert last_lines(log, 5) == ["a", "b�"]
    assert last_lines(log, 5, back=1) == []


def test_following_goes_through_rotation_and_ends_with_the_engine(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text("before\n")
    looks = iter(range(10))

    def goes_on() -> bool:
        look = next(looks)
        if look == 1:
            with log.open("a") as file:
                file.write("one\ntw")
        if look == 2:
            with log.open("a") as file:
                file.write("o\n")
            log.rename(tmp_path / "engine.log.1")
            log.write_text(f"{MARK}three\n")
        if look == 4:
            with log.open("a") as file:
                file.write("last")
        return look < 5

    assert list(follow(log, end_of(log), goes_on)) == ["one", "two", "three", "last"]
