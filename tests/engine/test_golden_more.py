"""What a real engine did in situations that the first capture lacks; `tests.interop.capture` made the file.

Two clients; each line says its scene and its client."""

from __future__ import annotations

import json
from collections.abc import Iterator

from engine import codec
from engine.codec import Dialect
from engine.messages import EngineCoreOutput, EngineCoreOutputs, EngineDead, FinishReason
from tests.support.golden import GOLDEN_DIR

Scene = list[tuple[int, list[bytes], EngineCoreOutputs]]


def outputs(scene: str) -> Scene:
    """(client, frames, message) of everything the engine said in that scene."""
    found: Scene = []
    for row in rows():
        if row["scene"] == scene and row["leg"] == "output":
            frames = [bytes.fromhex(frame) for frame in row["frames"]]
            message = codec.decode_outputs(frames)
            assert isinstance(message, EngineCoreOutputs)
            found.append((row["client"], frames, message))
    return found


def rows() -> Iterator[dict]:  # type: ignore[type-arg]
    for line in (GOLDEN_DIR / "engine-core-0.32.0-more.jsonl").read_text().splitlines():
        yield json.loads(line)


def finals(scene: str) -> list[tuple[int, EngineCoreOutput]]:
    return [(client, one) for client, _, message in outputs(scene) for one in message.outputs if one.finished]


def test_every_frame_is_read_and_said_again() -> None:
    for row in rows():
        frames = [bytes.fromhex(frame) for frame in row["frames"]]
        if row["leg"] == "input":
            decoded = codec.decode_request(frames)
            assert codec.decode_request(codec.encode_request(decoded, Dialect.V032)) == decoded
        else:
            message = codec.decode_outputs(frames)
            assert not isinstance(message, EngineDead)
            again = codec.decode_outputs(codec.encode_outputs(message, Dialect.V032))
            assert isinstance(again, EngineCoreOutputs)
            again.weight_version = message.weight_version  # ours is always named
            assert again == message


def test_a_stop_id_names_itself_and_the_end_of_text_does_not() -> None:
    ((_, stopped),) = finals("stop id")
    assert (stopped.finish_reason, stopped.stop_reason, stopped.new_token_ids) == (FinishReason.STOP, 282, [282])
    ((_, ended),) = finals("eos")
    assert (ended.finish_reason, ended.stop_reason, ended.new_token_ids) == (FinishReason.STOP, None, [282])


def test_a_hundred_logprobs_travel_in_frames_of_their_own() -> None:
    wide = [(frames, one) for _, frames, message in outputs("logprobs 100") for one in message.outputs]
    assert len(wide) == 2
    for frames, one in wide:
        assert len(frames) == 3 and one.new_logprobs is not None
        assert one.new_logprobs.token_ids.shape == [1, 101] == one.new_logprobs.logprobs.shape
        assert len(one.new_logprobs.token_ids.data) == 404 == len(one.new_logprobs.logprobs.data)


def test_each_client_hears_of_its_own_requests_and_one_of_the_step() -> None:
    said = outputs("second client")
    assert {one.request_id for client, _, message in said for one in message.outputs if client == 1} == {"other"}
    assert {client for client, _, message in said if message.scheduler_stats is not None} == {0}
    assert [client for client, _, message in said if message.utility_output is not None] == [1]


def test_an_unknown_utility_is_answered_with_its_name() -> None:
    (answer,) = [m.utility_output for _, _, m in outputs("unknown utility") if m.utility_output is not None]
    assert answer.failure_message is not None and "no_such_utility" in answer.failure_message


def test_any_client_may_abort_and_nobody_is_told() -> None:
    assert not finals("one client aborts a request of another")


def test_a_pause_that_aborts_tells_each_client() -> None:
    said = finals("pause abort")
    assert [(client, one.request_id, one.finish_reason) for client, one in said] == [
        (0, "paused-0", FinishReason.ABORT), (1, "paused-1", FinishReason.ABORT),
    ]  # fmt: skip


def test_under_term_it_says_nothing_at_all() -> None:
    """No last output, no death notice: whoever stands in between has to say it."""
    assert outputs("TERM under load") and not finals("TERM under load")


def test_it_tells_the_time_of_each_step_where_asked() -> None:
    told = [
        m.scheduler_stats.iteration_details for _, _, m in outputs("second client") if m.scheduler_stats is not None
    ]
    assert sum(details is not None and (details.elapsed_ms or 0) > 0 for details in told) == 3
