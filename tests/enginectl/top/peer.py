"""A supervisor's two sockets, answered from a table: a real ROUTER and a real PUB in a thread of their own.

Run as a program it serves a moving engine for a person who wants to look at the dashboard."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import msgspec
import zmq

from enginectl.control import ControlReply, EngineView, ErrorInfo
from enginectl.control_explain import Explanation, ExplanationList
from enginectl.control_verbs import EventList, RequestList
from enginectl.dirs import runtime_root, state_root
from enginectl.envelope import decode_request, encode, pack
from enginectl.identity import identify
from enginectl.record import Record, write_json
from enginectl.rundir import make_runtime_dir, make_state_dir, runtime_dir_of
from tests.enginectl.top import samples


class Peer:
    """Answers until `stop`. What it answers are plain attributes that a test may change at any time."""

    def __init__(self, folder: Path, name: str = "qwen") -> None:
        self.name = name
        self.view: EngineView = samples.view()
        self.requests: list = list(samples.requests(32))
        self.events: list = list(samples.events())
        self.refuse: dict[str, ErrorInfo] = {}
        """verb -> error"""
        self.mute: set[str] = set()
        """verbs that get no answer"""
        self.publishes = True
        self.asked: list[tuple[str, dict]] = []
        self.control_path, self.stats_path = folder / "control.sock", folder / "stats.sock"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._context = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self._router.bind(f"ipc://{self.control_path}")
        self._pub = self._context.socket(zmq.PUB)
        self._pub.bind(f"ipc://{self.stats_path}")

    def start(self) -> Peer:
        self._thread.start()
        return self

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(5)
        self._context.destroy(linger=0)
        self.control_path.unlink(missing_ok=True)
        self.stats_path.unlink(missing_ok=True)

    def tick(self) -> None:
        """Once a second, for a peer that moves."""

    def _serve(self) -> None:
        published = float("-inf")
        while not self._stop.is_set():
            if self._router.poll(50):
                sender, frame = self._router.recv_multipart()
                self._answer(sender, decode_request(frame))
            if time.monotonic() - published >= 1.0:
                published = time.monotonic()
                self.tick()
                if self.publishes:
                    self._pub.send(msgspec.msgpack.encode(self.view))

    def _answer(self, sender: bytes, request) -> None:
        args = msgspec.msgpack.decode(request.args)
        self.asked.append((request.verb, args or {}))
        if request.verb in self.mute:
            return
        if request.verb in self.refuse:
            reply = ControlReply(id=request.id, kind="error", error=self.refuse[request.verb])
        else:
            reply = ControlReply(id=request.id, kind="reply", data=pack(self._result(request.verb, args or {})))
        self._router.send_multipart([sender, encode(reply)])

    def _result(self, verb: str, args: dict) -> object:
        match verb:
            case "requests":
                return RequestList(items=self.requests[: args["limit"]], total=len(self.requests))
            case "events":
                return EventList(items=[e for e in self.events if e.seq > args["since_seq"]])
            case "explain":
                found = [r for r in self.requests if r.id == args["id"]]
                return ExplanationList(items=[Explanation(request=r, because="all 8 places run") for r in found])
            case "abort":
                self.requests = [r for r in self.requests if r.id not in args["ids"]]
                return {"items": [{"asked": i, "id": i, "result": "aborted"} for i in args["ids"]]}
            case _:
                return self.view


def register(name: str = "qwen") -> Path:
    """Files that make `name` a running engine whose supervisor is this process; its runtime directory.
    ENGINECTL_STATE_DIR and ENGINECTL_RUNTIME_DIR say where."""
    paths = make_state_dir(name)
    folder = make_runtime_dir(runtime_dir_of(name), paths.state)
    record = Record(
        name=name, uid=os.geteuid(), runtime_dir=str(folder), supervisor=identify(os.getpid()), state="busy"
    )
    write_json(paths.record, record)
    return folder


class MovingPeer(Peer):
    """For eyes: figures that change, requests that come and go."""

    def tick(self) -> None:
        view, turn = self.view, len(self.asked)
        view.uptime_s += 1
        assert view.stats is not None
        for key, values in view.stats.history.items():
            view.stats.history[key] = [*values[1:], values[0]]
        view.stats.running = sum(r.state == "running" for r in self.requests)
        view.stats.step.recent_ms = view.stats.step.recent_ms[7:] + view.stats.step.recent_ms[:7]
        view.stats.step.now_ms = view.stats.step.recent_ms[-1]
        view.stats.decode_tok_s = 1900.0 + turn % 50
        for row in self.requests:
            row.age_s += 1
            if row.state == "running":
                row.output_tokens = min((row.max_tokens or 0), row.output_tokens + 40)


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else "qwen"
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 32
    peer = MovingPeer(register(name), name)
    peer.view.name = name
    peer.requests = list(samples.requests(count))
    peer.start()
    print(f"serving {name} in {runtime_root()}, state in {state_root()}", flush=True)
    try:
        while True:
            time.sleep(1)
    except KeyboardInterrupt:
        peer.stop()


if __name__ == "__main__":
    main()
