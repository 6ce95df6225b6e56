"""The GPUs that one engine uses: memory and load as the NVIDIA driver shows them, for any kind of engine.

Owns a thread, where the driver's library (NVML) is there at all: a sick GPU lets its questions hang, and the
supervisor must not. Leaves: `seen`, replaced whole. Dies with the process; a driver that fails leaves an empty list."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple, Protocol

from enginectl.control_stats import GpuInfo
from enginectl.identity import session_members

if TYPE_CHECKING:
    from enginectl.supervisor.daemon import Daemon

LIBRARY = "libnvidia-ml.so.1"
LOOK_EVERY_S = 2.0
MAX_PROCESSES = 256


class Gpu(NamedTuple):
    info: GpuInfo
    pids: frozenset[int]
    """Who computes on it, as this process may see them."""


class Driver(Protocol):
    def gpus(self) -> list[Gpu]: ...


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Process(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class Nvml:
    """The driver's own library. One thread only."""

    def __init__(self, library: str = LIBRARY) -> None:
        """Raises OSError when there is no such library."""
        self._nvml = ctypes.CDLL(library)
        self._is_open = False

    def gpus(self) -> list[Gpu]:
        """Empty when the driver does not answer."""
        count = ctypes.c_uint()
        if not self._is_open:
            self._is_open = self._nvml.nvmlInit_v2() == 0
        if not self._is_open or self._nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)):
            return []
        return [gpu for index in range(count.value) if (gpu := self._gpu(index)) is not None]

    def _gpu(self, index: int) -> Gpu | None:
        handle, memory, load = ctypes.c_void_p(), _Memory(), _Utilization()
        if self._nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle)):
            return None
        if self._nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)):
            return None
        is_loaded = self._nvml.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(load)) == 0
        info = GpuInfo(
            index=index, used_bytes=memory.used, total_bytes=memory.total,
            busy_ratio=load.gpu / 100 if is_loaded else None,
        )  # fmt: skip
        return Gpu(info, self._pids(handle))

    def _pids(self, handle: ctypes.c_void_p) -> frozenset[int]:
        count, found = ctypes.c_uint(MAX_PROCESSES), (_Process * MAX_PROCESSES)()
        ask = getattr(self._nvml, "nvmlDeviceGetComputeRunningProcesses_v3", None)
        if ask is None or ask(handle, ctypes.byref(count), found):
            return frozenset()
        return frozenset(entry.pid for entry in found[: min(count.value, MAX_PROCESSES)])


def of_engine(gpus: list[Gpu], pids: Collection[int], chosen: Collection[int] | None, is_sure: bool) -> list[GpuInfo]:
    """`chosen` when the engine was given some; else where its processes are; else, when it surely uses GPUs, all: in
    a container the driver tells pids of the host, and shows only the container's GPUs."""
    if chosen is not None:
        return [gpu.info for gpu in gpus if gpu.info.index in chosen]
    mine = [gpu.info for gpu in gpus if not gpu.pids.isdisjoint(pids)]
    return mine or ([gpu.info for gpu in gpus] if is_sure else [])


def open_driver() -> Driver | None:
    try:
        return Nvml()
    except OSError:
        return None


class GpuMeter:
    """`pids`, `chosen` and `is_sure` are asked in the thread, each round."""

    def __init__(
        self,
        pids: Callable[[], Collection[int]],
        chosen: Collection[int] | None,
        is_sure: Callable[[], bool],
        driver: Callable[[], Driver | None] = open_driver,
    ) -> None:
        self.seen: list[GpuInfo] = []
        self._pids, self._chosen, self._is_sure = pids, chosen, is_sure
        self._open = driver

    def start(self) -> None:
        """Costs nothing where there is no driver."""
        driver = self._open()
        if driver is not None:
            threading.Thread(target=self._run, args=(driver,), name="gpus", daemon=True).start()

    def _run(self, driver: Driver) -> None:
        rest = threading.Event()
        try:
            while True:
                self.seen = of_engine(driver.gpus(), self._pids(), self._chosen, self._is_sure())
                rest.wait(LOOK_EVERY_S)
        finally:
            self.seen = []  # figures that nobody renews any more would be believed


def gpu_meter(daemon: Daemon) -> GpuMeter:
    """Of whatever engine the daemon runs at a time."""

    def pids() -> Collection[int]:
        child = daemon.child
        return session_members(child.pid) if child is not None else ()

    def is_sure() -> bool:
        described = daemon.description
        return not daemon.kind.has_own_utilities or (described is not None and described.device.startswith("cuda"))

    return GpuMeter(pids, daemon.settings.gpus, is_sure)
