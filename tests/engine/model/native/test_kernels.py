"""How the compiled step comes to be: at once, in the background, or not at all, while the engine serves."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch

from engine.errors import ModelError
from engine.executor import uniproc
from engine.model.loader import Target
from engine.model.native import build, kernels
from engine.model.native.decoder import NativeDecoder
from engine.model.native.kernels import Kernels
from tests.support.native import CPU, small_config
from tests.support.steps import Job, Steps, greedy, load
from tests.support.tiny_model import make_tiny_model
from tests.support.wait import wait_until

pytestmark = pytest.mark.thread

BUILD_LIMIT_S = 100.0


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No library was built yet. What is built is not optimised, so that it is there soon."""
    monkeypatch.setenv(build.DIRECTORY_SETTING, str(tmp_path / "native"))
    monkeypatch.setattr(build, "_FLAGS", (*build._FLAGS, "-O1"))
    return tmp_path / "native"


def jobs(count: int = 8) -> list[Job]:
    return [Job([3 + i, 40 + 7 * i, 100 + i], greedy(), count=60, arrives=i) for i in range(count)]


@pytest.fixture(scope="module")
def expected(tiny: Path) -> list[list[int]]:
    return Steps(load(tiny, dtype="float32", blocks=300)).run(jobs())


def need_compiler() -> None:
    try:
        build.find_compiler()
    except build.BuildError as error:
        pytest.skip(str(error))


def test_it_is_exchanged_in_the_middle_of_generations_and_no_token_changes(
    tiny: Path, expected: list[list[int]], empty: Path, caplog: pytest.LogCaptureFixture
) -> None:
    need_compiler()
    caplog.set_level(logging.INFO, "engine")
    executor = load(tiny, dtype="float32", blocks=300, kernels="auto", threads=2)
    assert executor.kernels == "building (eager until it is there)"
    assert executor._kernels.prospect == "until kernels are compiled"
    steps, work = Steps(executor), jobs()
    for _ in range(20):
        steps.step(work)
    wait_until(lambda: executor._kernels.has_arrived, BUILD_LIMIT_S)
    assert not isinstance(executor.worker.decoder, NativeDecoder)
    assert steps.run(work) == expected
    assert isinstance(executor.worker.decoder, NativeDecoder)
    assert executor.kernels.startswith("native (")
    assert executor._kernels.prospect == ""
    assert caplog.text.count("from now on steps run in compiled code") == 1
    executor.shutdown()


def test_what_was_built_before_runs_from_the_first_step(tiny: Path, expected: list[list[int]]) -> None:
    need_compiler()
    load(tiny, kernels="native").shutdown()
    executor = load(tiny, dtype="float32", blocks=300, kernels="auto")
    assert executor.kernels.startswith("native (")
    assert Steps(executor).run(jobs()) == expected
    executor.shutdown()


@pytest.mark.parametrize("level", [1, 2])
def test_sleep_and_wake_up_keep_it(tiny: Path, expected: list[list[int]], level: int) -> None:
    need_compiler()
    executor = load(tiny, dtype="float32", blocks=300, kernels="native")
    executor.sleep(level)
    executor.wake_up()
    assert executor.kernels.startswith("native (")
    assert Steps(executor).run(jobs()) == expected


def test_without_a_compiler_it_serves_and_says_why_once(
    tiny: Path,
    expected: list[list[int]],
    empty: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    executor = load(tiny, dtype="float32", blocks=300, kernels="auto")
    assert executor.kernels == "eager (no C compiler on PATH (cc, gcc, clang))"
    assert executor._kernels.prospect == "no C compiler on PATH (cc, gcc, clang)"
    assert Steps(executor).run(jobs()) == expected
    assert caplog.text.count("no C compiler on PATH") == 1


def test_with_native_asked_for_the_start_fails_and_says_why(
    tiny: Path, empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ModelError, match="no C compiler on PATH"):
        load(tiny, kernels="native")


def test_with_native_asked_for_what_it_is_not_made_for_fails_too(tiny: Path, empty: Path) -> None:
    with pytest.raises(ModelError, match=r"not made for LlamaForCausalLM in torch\.float16"):
        load(tiny, kernels="native", dtype="float16")
    assert not empty.exists()


def test_without_memory_for_a_second_copy_of_the_weights_torch_goes_on(
    tiny: Path, expected: list[list[int]], empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_compiler()
    monkeypatch.setattr(uniproc, "available_memory_bytes", lambda: 1000)
    executor = load(tiny, dtype="float32", blocks=300, kernels="auto")
    wait_until(lambda: executor.kernels.startswith("eager"), BUILD_LIMIT_S)
    assert "second copy of the weights, 0.0 GB are left" in executor.kernels
    assert Steps(executor).run(jobs()) == expected
    assert build.find_library(build.levels()[0]) is not None, "the next start has it"


def test_a_library_that_counts_wrongly_is_not_used(
    tiny: Path,
    expected: list[list[int]],
    empty: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    need_compiler()
    monkeypatch.setattr(build, "_FLAGS", (*build._FLAGS, "-O1", "-Dsqrtf=fabsf"))  # in the norm
    executor = load(tiny, dtype="float32", blocks=300, kernels="auto")
    wait_until(lambda: executor.kernels.startswith("eager"), BUILD_LIMIT_S)
    assert "differ by" in executor.kernels
    assert Steps(executor).run(jobs()) == expected
    assert caplog.text.count("the compiled step is not used") == 1


def test_a_shutdown_ends_the_build(tiny: Path, empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "cc").write_text("#!/bin/sh\nexec sleep 100\n")
    (tmp_path / "bin" / "cc").chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    executor = load(tiny, kernels="auto")
    thread = executor._kernels._thread
    wait_until(lambda: any(empty.glob(".building-*")), 20)
    executor.shutdown()
    assert thread is not None
    wait_until(lambda: not thread.is_alive(), 20)
    assert list(empty.iterdir()) == []


def test_a_shutdown_between_two_levels_begins_no_other_build(monkeypatch: pytest.MonkeyPatch) -> None:
    work = Kernels("auto", small_config(), Target(torch.float32, torch.float32, CPU))
    ran: list[build.Build] = []

    class Closing(build.Build):
        def __init__(self, level: build.Level) -> None:
            work.close()
            super().__init__(level)

        def run(self) -> Path:
            ran.append(self)
            raise build.BuildError("it ran")

    monkeypatch.setattr(kernels, "Build", Closing)
    assert work._build_any() is None
    assert ran == []


@pytest.mark.parametrize("settings", [{"kernels": "eager"}, {"kernels": "auto", "dtype": "float16"}])
def test_where_it_is_not_wanted_or_not_made_for_nothing_is_built(
    tiny: Path, empty: Path, settings: dict[str, str]
) -> None:
    executor = load(tiny, **settings)
    assert executor.kernels.startswith("eager (")
    assert executor._kernels._thread is None
    assert not empty.exists()
    with torch.inference_mode():
        assert len(Steps(executor).run([Job([5, 6], count=3)])[0]) == 3
