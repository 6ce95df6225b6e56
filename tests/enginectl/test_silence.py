"""Why a supervisor says nothing, and what to run."""

from __future__ import annotations

import os

from enginectl.identity import ProcessId, boot_id, identify
from enginectl.silence import unreachable, why_silent


def test_each_silence_has_its_words_and_its_verb() -> None:
    me = identify(os.getpid())
    assert why_silent(me) == f"its supervisor (pid {os.getpid()}) is alive and does not answer"
    assert "holds the lock" in why_silent(None)
    error = unreachable("t", me, "no answer")
    assert (error.id, int(error.exit), error.try_[0]) == ("E1411", 69, "enginectl kill t")
    gone = unreachable("t", ProcessId(pid=os.getpid(), start_time=1, boot_id=boot_id()), "no answer")
    assert gone.try_ == ["enginectl status t"]
    assert "gone" in gone.message
