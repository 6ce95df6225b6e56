"""A supervisor of the first version, frozen in time: a few verbs as plain maps, none of what was added later.

`python -m tests.support.old_supervisor NAME [garbage]` writes the record of NAME and serves its control socket until
drain or stop. With `garbage` every answer is bytes that are no reply."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import zmq

VERSION = "0.0.9"
LIMIT_S = 60.0
Plain = dict[str, Any]


def process_id() -> Plain:
    """As record.json names a process."""
    fields = Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return {"pid": os.getpid(), "start_time": int(fields[19]), "boot_id": boot}


class OldSupervisor:
    def __init__(self, name: str, *, garbage: bool) -> None:
        self.name = name
        self.garbage = garbage
        self.state = Path(os.environ["ENGINECTL_STATE_DIR"]) / "engines" / name
        self.base = Path(os.environ["ENGINECTL_RUNTIME_DIR"]) / name
        for path in (self.state.parent.parent, self.state.parent, self.state, self.base.parent, self.base):
            path.mkdir(mode=0o700, exist_ok=True)
        self.is_over = False

    def record(self, state: str, *, ended: bool) -> None:
        fields = {
            "v": 1,
            "name": self.name,
            "instance": "0ldone",
            "uid": os.geteuid(),
            "runtime_dir": str(self.base),
            "supervisor": process_id(),
            "state": state,
            "ended": ended,
            "model": "tiny",
            "supervisor_version": VERSION,
            "started_at": time.time(),
        }
        if ended:
            fields["last_exit"] = {"code": 0, "requested": True, "at": time.time()}
        (self.state / "record.json").write_text(json.dumps(fields))

    def serve(self) -> None:
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        socket = context.socket(zmq.ROUTER)
        socket.bind(f"ipc://{self.base}/control.sock")
        self.record("idle", ended=False)
        end = time.monotonic() + LIMIT_S
        while not self.is_over and time.monotonic() < end:
            if socket.poll(200):
                peer, frame = socket.recv_multipart()
                for reply in self.answer(msgspec.msgpack.decode(frame)):
                    socket.send_multipart([peer, b"\xc1junk" if self.garbage else msgspec.msgpack.encode(reply)])
        self.record("exited", ended=True)
        socket.close(1000)
        context.term()

    def answer(self, request: Plain) -> list[Plain]:
        def reply(kind: str, data: Plain) -> Plain:
            return {"v": 1, "id": request["id"], "kind": kind, "data": data}

        match request["verb"]:
            case "status":
                return [reply("reply", self.view())]
            case "drain":
                self.is_over = True
                return [reply("item", {"grace_s": 5.0}), reply("end", {"drained": True, "took_s": 0.1})]
            case "stop":
                self.is_over = True
                return [reply("item", {"stage": "abort"}), reply("end", {"stage": "gone", "elapsed_s": 0.1})]
            case verb:
                text = f"verb {verb!r} is not known to this supervisor (version {VERSION})"
                error = {"id": "E1001", "message": text, "cause": "known: drain, status, stop", "exit": 2}
                return [{"v": 1, "id": request["id"], "kind": "error", "error": error}]

    def view(self) -> Plain:
        stats = {"running": 0, "waiting": 0, "step_counter": 7}
        return {"name": self.name, "state": "idle", "model": "tiny", "stats": stats, "supervisor_version": VERSION}


if __name__ == "__main__":
    os.umask(0o077)
    OldSupervisor(sys.argv[1], garbage="garbage" in sys.argv[2:]).serve()
