"""The receipt and the kept snapshots."""

from __future__ import annotations

from enginectl.top.session import HISTORY, HISTORY_ROWS, Session
from enginectl.top.snapshot import Link
from tests.enginectl.top import samples


def shown(seq: int, kv: float = 0.5, aborted: int = 0, instance: str = "one", **changes: object):  # type: ignore[no-untyped-def]
    stats = samples.stats()
    stats.kv_used_ratio, stats.aborted_total = kv, aborted
    return samples.snapshot(seq=seq, view=samples.view(stats=stats, instance=instance), **changes)


def test_the_receipt_has_peaks_and_differences() -> None:
    now = [0.0]
    session = Session(lambda: now[0])
    session.add(shown(1, kv=0.3, aborted=7))
    session.add(shown(2, kv=0.61, aborted=9))
    session.add(shown(3, kv=0.2, aborted=10))
    now[0] = 125.0
    assert session.receipt("qwen") == (
        "enginectl top: qwen watched for 2m05s, step p50 19.8 p95 24.1 ms, peak KV 61%, aborted 3"
    )


def test_a_restarted_engine_counts_anew_and_never_backwards() -> None:
    session = Session()
    session.add(shown(1, aborted=100))
    session.add(shown(2, aborted=0))
    session.add(shown(3, aborted=50, instance="two"))
    session.add(shown(4, aborted=51, instance="two"))
    assert session.receipt("qwen").endswith("aborted 1")


def test_nothing_seen_is_dashes() -> None:
    assert "p50 - p95 - ms, peak KV -, aborted 0" in Session().receipt("qwen")


def test_data_of_the_past_does_not_count() -> None:
    session = Session()
    session.add(shown(1, kv=0.9, link=Link(state="lost")))
    assert "peak KV -" in session.receipt("qwen")


def test_history_is_bounded_and_found_by_number() -> None:
    session = Session()
    assert session.at(None) is None
    for seq in range(1, HISTORY + 50):
        session.add(samples.snapshot(seq=seq, count=0))
    assert len(session.seqs) == HISTORY
    assert session.at(None).seq == HISTORY + 49  # type: ignore[union-attr]
    assert session.at(100).seq == 100  # type: ignore[union-attr]
    assert session.at(1).seq == session.seqs[0]  # type: ignore[union-attr]


def test_old_snapshots_keep_fewer_rows() -> None:
    session = Session()
    for seq in (1, 2):
        session.add(samples.snapshot(seq=seq, count=1000))
    assert len(session.at(1).requests) == HISTORY_ROWS  # type: ignore[union-attr]
    assert len(session.at(2).requests) == 1000  # type: ignore[union-attr]


def test_forget_and_reset() -> None:
    session = Session()
    session.add(shown(1))
    session.reset()
    assert "peak KV -" in session.receipt("qwen")
    assert session.latest is not None
    session.forget()
    assert session.latest is None
