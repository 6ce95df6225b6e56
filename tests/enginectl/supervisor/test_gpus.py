"""GPUs of an engine: which ones, and the driver's library through a stand-in that is compiled here."""

from __future__ import annotations

import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from enginectl.control_stats import GpuInfo
from enginectl.supervisor.gpus import Gpu, GpuMeter, Nvml, of_engine
from tests.support.wait import wait_until

FAKE = r"""
#include <string.h>
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned int gpu, memory; } Load;
typedef struct { unsigned int pid; unsigned long long used; unsigned int a, b; } Process;
static long devices[2] = {0, 1};
static int opened = 0;
int nvmlInit_v2(void) { opened = 1; return 0; }
int nvmlDeviceGetCount_v2(unsigned int *n) { if (!opened) return 1; *n = 3; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int i, void **device) {
  if (i > 1) return 6;
  *device = &devices[i];
  return 0;
}
int nvmlDeviceGetMemoryInfo(void *device, Memory *m) {
  m->total = 80ull << 30; m->used = (71ull - *(long *)device) << 30; m->free = m->total - m->used;
  return 0;
}
int nvmlDeviceGetUtilizationRates(void *device, Load *load) {
  if (*(long *)device == 1) return 3;
  load->gpu = 92; load->memory = 5;
  return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned int *n, Process *found) {
  if (*n < 2) return 7;
  memset(found, 0, 2 * sizeof(Process));
  found[0].pid = 100 + *(long *)device; found[1].pid = 7; *n = 2;
  return 0;
}
"""


def info(index: int) -> GpuInfo:
    return GpuInfo(index=index, used_bytes=1, total_bytes=2)


def test_the_driver_is_read(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler to build the stand-in with")
    (tmp_path / "fake.c").write_text(FAKE)
    library = tmp_path / "libfake.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, tmp_path / "fake.c"], check=True, timeout=60)
    first, second = Nvml(str(library)).gpus()
    assert first.info == GpuInfo(index=0, used_bytes=71 << 30, total_bytes=80 << 30, busy_ratio=0.92)
    assert second.info == GpuInfo(index=1, used_bytes=70 << 30, total_bytes=80 << 30, busy_ratio=None)
    assert (first.pids, second.pids) == ({100, 7}, {101, 7})


def test_no_library_is_said_at_once() -> None:
    with pytest.raises(OSError, match="libnowhere"):
        Nvml("libnowhere.so.1")


@pytest.mark.parametrize(
    ("pids", "chosen", "is_sure", "expected"),
    [
        ({11}, None, False, [0]),
        ({11, 22}, None, True, [0, 1]),
        ({99}, None, False, []),
        ({99}, None, True, [0, 1, 2]),
        ({11}, [2], False, [2]),
    ],
)
def test_which_gpus_are_the_engines(
    pids: set[int], chosen: list[int] | None, is_sure: bool, expected: list[int]
) -> None:
    gpus = [Gpu(info(0), frozenset({11})), Gpu(info(1), frozenset({22})), Gpu(info(2), frozenset())]
    assert [found.index for found in of_engine(gpus, pids, chosen, is_sure)] == expected


def test_the_meter_follows_the_driver_and_needs_none() -> None:
    class Moving:
        def gpus(self) -> list[Gpu]:
            return [Gpu(info(0), frozenset({5}))]

    meter = GpuMeter(lambda: {5}, None, lambda: False, Moving)
    meter.start()
    wait_until(lambda: bool(meter.seen), 10, "a look at the driver")
    assert meter.seen == [info(0)]
    without = GpuMeter(lambda: {5}, None, lambda: False, lambda: None)
    without.start()
    assert without.seen == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_driver_that_breaks_leaves_no_old_figures() -> None:
    may_break = threading.Event()

    class Breaking:
        def gpus(self) -> list[Gpu]:
            if meter.seen:
                may_break.wait(10)
                raise AttributeError("undefined symbol")
            return [Gpu(info(0), frozenset({5}))]

    meter = GpuMeter(lambda: {5}, None, lambda: False, Breaking)
    meter.start()
    wait_until(lambda: bool(meter.seen), 10, "a look at the driver")
    may_break.set()
    wait_until(lambda: not meter.seen, 10, "the end of the thread")
