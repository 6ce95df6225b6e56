from __future__ import annotations

from engine.reports import RequestTable
from enginectl.errors import Deadline
from enginectl.supervisor import tables as module
from enginectl.supervisor.loop import Future, Loop
from enginectl.supervisor.tables import Tables


class Engine:
    """Answers each question when told to."""

    def __init__(self) -> None:
        self.asked: list[Future[RequestTable]] = []

    async def get(self, method: str, kind: type[RequestTable], limit: int, timeout_s: float) -> RequestTable:
        self.asked.append(Future())
        return await self.asked[-1]


def run(loop: Loop, *tables: Tables, number: int, answer: object, engine: Engine) -> list[RequestTable | None]:
    """So many observers ask at once; the engine then answers."""
    found: list[RequestTable | None] = []

    async def observe() -> None:
        found.append(await tables[0].get())
        if len(found) == number:
            loop.stop()

    def reply() -> None:
        for future in engine.asked:
            if isinstance(answer, RequestTable):
                future.set_result(answer)
            else:
                future.set_error(Deadline("late"))

    loop._stopping = False
    for _ in range(number):
        loop.spawn(observe())
    loop.after(0.02, reply)
    loop.run()
    return found


def test_many_observers_are_one_question() -> None:
    loop, engine, table = Loop(), Engine(), RequestTable(items=[], total=7)
    tables = Tables(loop, engine)  # type: ignore[arg-type]
    assert run(loop, tables, number=10, answer=table, engine=engine) == [table] * 10
    assert len(engine.asked) == 1
    assert run(loop, tables, number=5, answer=table, engine=engine) == [table] * 5
    assert len(engine.asked) == 1


def test_an_old_answer_is_asked_for_again() -> None:
    loop, engine = Loop(), Engine()
    tables = Tables(loop, engine)  # type: ignore[arg-type]
    first, second = RequestTable(items=[], total=1), RequestTable(items=[], total=2)
    run(loop, tables, number=1, answer=first, engine=engine)
    tables._at -= module.FRESH_S
    assert run(loop, tables, number=2, answer=second, engine=engine) == [second] * 2
    assert len(engine.asked) == 2


def test_silence_is_no_table_and_is_not_asked_about_at_once() -> None:
    loop, engine = Loop(), Engine()
    tables = Tables(loop, engine)  # type: ignore[arg-type]
    assert run(loop, tables, number=3, answer=None, engine=engine) == [None] * 3
    assert run(loop, tables, number=3, answer=None, engine=engine) == [None] * 3
    assert len(engine.asked) == 1


def test_a_kind_of_engine_without_a_table_is_never_asked() -> None:
    loop, engine = Loop(), Engine()
    tables = Tables(loop, engine, lambda: False)  # type: ignore[arg-type]
    assert run(loop, tables, number=2, answer=None, engine=engine) == [None, None]
    assert not engine.asked
