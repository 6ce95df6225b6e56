"""run_engine_core: the life of one engine process, from the first signal handler to the last word.

The target of a `multiprocessing.Process` (spawn), and what `python -m engine` calls. Returns by SystemExit: 0 after a
clean shutdown, 143 when stopped before the loop ran, 1 otherwise. Imports torch late: signals are heard early."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine import limits
from engine.config import EngineConfig
from engine.errors import EngineError
from engine.signals import STOPPED_BEFORE_READY, StopSignals, die_with_parent, dump_stacks_on_signal, watch_parent
from engine.status import StatusReport
from engine.time_slice import COMPUTING_SLICE_NS, shorten_time_slice

if TYPE_CHECKING:
    from engine.handshake import Handshake
    from engine.proc import EngineCoreProc

logger = logging.getLogger("engine")
FAILED = 1
SWITCH_INTERVAL_S = 0.0005
"""How long a thread may keep the interpreter lock while another wants it. The default of 5 ms is what the loop would
wait, several times a step, whenever an IO thread decodes something."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How this process is tied to whoever spawned it."""

    handshake_address: str
    handshake_timeout_s: float = limits.INIT_DEADLINE_S
    """How long a frontend may take until INIT."""
    engine_index: int = 0
    local_frontend: bool = False
    status_fd: int | None = None
    death_fd: int | None = None
    parent_pid: int | None = None
    """When given, the kernel's parent-death signal is used too; only for a parent that spawns from its main thread."""


def set_thread_policy(config: EngineConfig) -> None:
    """How OpenMP's workers wait, decided before torch is imported.

    Workers that spin collapse torch as soon as anything else wants a core; workers that never spin cost a third on a
    quiet machine. A short spin is right for both. A setting that is already there is left alone."""
    threads = config.threads or len(os.sched_getaffinity(0))
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    os.environ.setdefault("GOMP_SPINCOUNT", "5000")
    os.environ.setdefault("KMP_BLOCKTIME", "1")


def run_engine_core(config: EngineConfig, launch: Launch) -> None:
    """Never returns normally: SystemExit carries the status. Blocks until the engine ends."""
    shorten_time_slice(COMPUTING_SLICE_NS)  # all threads inherit it; the IO threads take a shorter one
    signals = StopSignals()
    signals.install()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    dump_stacks_on_signal()
    if launch.parent_pid is not None:
        die_with_parent(launch.parent_pid)
    if launch.death_fd is not None:
        watch_parent(launch.death_fd, config.orphan_grace_s)
    set_thread_policy(config)
    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(threadName)s: %(message)s"
    )
    logger.setLevel(config.log_level.upper())
    status = StatusReport(launch.status_fd)
    try:
        _serve(config, launch, signals, status)
    finally:
        signals.restore()
        sys.stderr.flush()


def _serve(config: EngineConfig, launch: Launch, signals: StopSignals, status: StatusReport) -> None:
    engine: EngineCoreProc | None = None
    handshake: Handshake | None = None
    try:
        handshake = _greet(launch, status)
        engine = _build(config, launch, handshake, signals, status)
        handshake.check_open()
        engine.start_threads()
        signals.attach(engine.input_queue)
        if signals.requested:
            raise SystemExit(STOPPED_BEFORE_READY)
        engine.begin()
        handshake.ready()
        status.begin("ready")
        engine.run_busy_loop()
    except Exception as error:
        _report(error, engine, status)
        raise SystemExit(FAILED) from None
    finally:
        if handshake is not None:
            handshake.close()
        if engine is not None:
            engine.shutdown()
    logger.info("stopped")
    raise SystemExit(0)


def _greet(launch: Launch, status: StatusReport) -> Handshake:
    from engine.handshake import Handshake

    status.begin("handshake", launch.handshake_address)
    handshake = Handshake(
        launch.handshake_address,
        launch.engine_index,
        is_local=launch.local_frontend,
        deadline_s=launch.handshake_timeout_s,
    )
    handshake.greet()
    status.end("handshake")
    return handshake


def _build(
    config: EngineConfig, launch: Launch, handshake: Handshake, signals: StopSignals, status: StatusReport
) -> EngineCoreProc:
    status.begin("load weights")  # the imports below take longer than reading a small model
    from engine.proc import EngineCoreProc

    return EngineCoreProc(config, handshake, signals, status, launch.engine_index)


def _report(error: Exception, engine: EngineCoreProc | None, status: StatusReport) -> None:
    """The cause to the log and to the status line. An error of a kind we know needs no traceback."""
    if engine is not None and engine.lifecycle.phase.value != "starting":
        engine.die(error)
        logger.error("the engine died", exc_info=error)
        return
    status.failed(error)
    if isinstance(error, EngineError):
        logger.error("start failed in phase '%s': %s", status.phase, error)
    else:
        logger.error("start failed in phase '%s'", status.phase, exc_info=error)
