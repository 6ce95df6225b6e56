from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench.arms import NoSuchPeer, core_list, ours, peer_best, peer_default, shape_of


def test_no_arm_inherits_what_decides_over_threads() -> None:
    shell = {
        "PATH": "/bin",
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "0",
        "LD_PRELOAD": "x.so",
        "KMP_A": "1",
    }
    assert ours("/m").full_environment(shell) == {"PATH": "/bin"}
    found = peer_default("/v/bin/python", "/m").full_environment(shell)
    assert found.keys() - {"VLLM_CPU_KVCACHE_SPACE", "VLLM_NO_USAGE_STATS", "HF_HUB_OFFLINE"} == {"PATH"}


def test_the_best_setting_has_all_cores_and_the_other_openmp(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libiomp5.so").touch()
    arm = peer_best(str(tmp_path / "bin" / "python"), "/m", cores=[0, 1])
    assert arm.environment["LD_PRELOAD"] == str(tmp_path / "lib" / "libiomp5.so")
    assert arm.environment["VLLM_CPU_OMP_THREADS_BIND"] == "0-1"
    default = peer_default(str(tmp_path / "bin" / "python"), "/m")
    assert (arm.command, arm.files) == (default.command, default.files)


def test_the_peer_may_be_given_another_type_and_nothing_else_changes() -> None:
    usual, other = (peer_default("p", "/m", shape=shape_of(dtype)).command for dtype in ("bfloat16", "float32"))
    assert [(a, b) for a, b in zip(usual, other, strict=True) if a != b] == [("bfloat16", "float32")]


def test_each_start_has_its_environment_and_model_read_before() -> None:
    assert ours("/m").files == (Path(sys.executable).parent.parent / "lib", Path("/m"))
    assert peer_default("/v/bin/python", "/m").files == (Path("/v/lib"), Path("/m"))


def test_without_that_library_the_best_setting_is_refused_with_the_way_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(NoSuchPeer, match="pip install intel-openmp"):
        peer_best(str(tmp_path / "bin" / "python"), "/m")


@pytest.mark.parametrize(("cores", "text"), [([0, 1, 2], "0-2"), ([3], "3"), ([0, 2, 3], "0,2,3")])
def test_cores_as_the_peer_reads_them(cores: list[int], text: str) -> None:
    assert core_list(cores) == text
