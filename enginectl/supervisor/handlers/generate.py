"""`generate`: one request from our own seat, its chunks as they come. A caller that vanished aborts it."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING

from msgspec import Raw

from engine.codec import encode_request
from engine.messages import NIL, AbortIds, EngineCoreOutput, EngineCoreRequest, FinishReason, Logprobs
from enginectl.control_verbs import Array, GenerateArgs, GenerateChunk, GenerateEnd, LogprobTables
from enginectl.envelope import pack
from enginectl.errors import Conflict, GenerationFailed, UsageError
from enginectl.supervisor.inflight import Flight
from enginectl.supervisor.loop import Cancelled, Future

if TYPE_CHECKING:
    from enginectl.supervisor.daemon import Daemon
    from enginectl.supervisor.server import Session


MAX_ID_CHARS = 200


async def handle(daemon: Daemon, session: Session, args: GenerateArgs) -> None:
    daemon.crowd.check_room(len(daemon.consumers))
    request = _request(daemon, args)
    flight = daemon.traffic.add(daemon.relay.own, request, encode_request(request, daemon.relay.dialect))
    finished: Future[EngineCoreOutput] = Future()
    daemon.consumers[flight.id] = lambda output: _on_output(session, flight, output, finished)
    try:
        await _wait(daemon, flight, finished)
        _finish(session, flight, finished.result())
    except Cancelled:
        daemon.crowd.on_lost(flight.id)
        raise
    finally:
        daemon.consumers.pop(flight.id, None)
        if flight.id in daemon.inflight.flights:
            _give_up(daemon, flight)


async def _wait(daemon: Daemon, flight: Flight, finished: Future[EngineCoreOutput]) -> None:
    """Until its last output, across engines while it is held. Raises EngineDied."""
    while not finished.done:
        hold, ended = daemon.traffic.hold, daemon.engine_exit
        await daemon.loop.first(finished, hold.over if hold.is_holding else ended)
        if finished.done or hold.is_holding:
            continue
        # The next engine may be there before we run: then the end of this request says that its own is gone.
        if flight.gone.done or (ended.done and daemon.engine_exit is ended):
            raise daemon.died()


def _request(daemon: Daemon, args: GenerateArgs) -> EngineCoreRequest:
    """Raises Conflict when the id is in use, UsageError when it cannot be one."""
    asked = args.request_id
    if len(asked) > MAX_ID_CHARS or not asked.isprintable():
        raise UsageError(f"request id of {len(asked)} characters", cause=f"printable, at most {MAX_ID_CHARS}")
    if asked and any(flight.external_id == asked for flight in daemon.inflight.flights.values()):
        raise Conflict(f"request {asked!r} is running already", try_=[f"enginectl abort {asked}"])
    external = asked or f"gen-{secrets.token_hex(4)}"
    return EngineCoreRequest(
        request_id=f"{external}-{secrets.token_hex(4)}", prompt_token_ids=args.prompt_token_ids,
        sampling_params=args.sampling_params, arrival_time=time.time(), cache_salt=args.cache_salt,
        client_index=daemon.relay.own.index, priority=args.priority, external_req_id=external,
    )  # fmt: skip


def _on_output(session: Session, flight: Flight, output: EngineCoreOutput, finished: Future[EngineCoreOutput]) -> None:
    """What cannot be passed on ends this request, nothing else."""
    try:
        _pass_on(session, flight, output)
    except (TypeError, ValueError, OverflowError) as error:
        text = f"request {flight.external_id!r}: its output cannot be passed on"
        finished.set_error(GenerationFailed(text, cause=str(error)))
    if output.finish_reason is not None:
        finished.set_result(output)


def _pass_on(session: Session, flight: Flight, output: EngineCoreOutput) -> None:
    if output.new_token_ids or output.new_prompt_logprobs is not None:
        session.item(
            GenerateChunk(
                request_id=flight.external_id, token_ids=output.new_token_ids, logprobs=_raw(output.new_logprobs),
                prompt_logprobs=_raw(output.new_prompt_logprobs),
            )
        )  # fmt: skip


def _raw(value: Logprobs | None) -> Raw:
    if value is None:
        return NIL
    arrays = (Array(array.dtype, array.shape, array.data) for array in (value.token_ids, value.logprobs, value.ranks))
    return pack(LogprobTables(*arrays))


def _finish(session: Session, flight: Flight, last: EngineCoreOutput) -> None:
    """An error of the engine is the caller's error; every other end is a GenerateEnd."""
    if last.finish_reason == FinishReason.ERROR:
        text = last.stop_reason if isinstance(last.stop_reason, str) else "the engine ended it with an error"
        raise GenerationFailed(f"request {flight.external_id!r}: {text}")
    session.end(
        GenerateEnd(
            request_id=flight.external_id, finish_reason=str(FinishReason(last.finish_reason or 0)),
            stop_reason=last.stop_reason, prompt_tokens=flight.prompt_tokens, output_tokens=flight.output_tokens,
            cached_tokens=flight.cached_tokens or 0, ttft_s=flight.ttft_s, total_s=time.monotonic() - flight.added_at,
        )
    )  # fmt: skip


def _give_up(daemon: Daemon, flight: Flight) -> None:
    """Nobody reads it any more: the engine is told; it stays in the table until its last output."""
    if daemon.engine_exit.done and not daemon.traffic.hold.is_holding:
        return
    ids = [flight.id]
    daemon.traffic.abort(daemon.relay.own, ids, encode_request(AbortIds(ids)))
