"""TAB against a running engine: what the real shells offer, the command takes. And `completion`, which installs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ctl import ROOT, Ctl
from tests.support.shells import Fish, Shell, open_shell
from tests.support.wait import wait_until

pytestmark = pytest.mark.e2e
SCRIPTS = {
    "bash": ROOT / "completions" / "enginectl.bash",
    "zsh": ROOT / "completions" / "_enginectl",
    "fish": ROOT / "completions" / "enginectl.fish",
}


@pytest.fixture(params=["bash", "zsh", "fish"])
def shell(request: pytest.FixtureRequest, served: Ctl, tmp_path: Path) -> Iterator[Shell | Fish]:
    opened = open_shell(request.param, tmp_path, served.env, SCRIPTS)
    yield opened
    opened.close()


def test_names_utilities_and_ids_of_a_running_engine_are_taken_by_the_command(served: Ctl, shell: Shell | Fish) -> None:
    for verb in ("status", "requests", "cordon", "uncordon"):
        names = shell.candidates(f"enginectl {verb} ")
        assert names == ["t"]
        served.ok(verb, *names)
    properties = shell.candidates("enginectl status -p ")
    assert {"state", "process.pid", "stats.kv_used_ratio"} <= set(properties)
    assert len(served.ok("status", "t", *(f"--property={key}" for key in properties)).out.splitlines()) == len(
        properties
    )
    utilities = wait_until(lambda: shell.candidates("enginectl call -e t "), 10.0, "utilities")
    listed = {item["name"] for item in served.ok("call", "--list", "-o", "json").document["items"]}
    assert set(utilities) == listed
    for utility in utilities[:3]:
        served.ok("call", "-e", "t", "--describe", utility)


def test_ids_are_offered_while_requests_run_and_abort_takes_them(served: Ctl, shell: Shell | Fish) -> None:
    running = [served.generate() for _ in range(2)]
    served.wait_running(2)
    wanted = sorted(item["external_id"] for item in served.requests())
    wait_until(lambda: sorted(shell.candidates("enginectl abort -e t ")) == wanted, 10.0, "both ids")
    assert sorted(shell.candidates(f"enginectl abort {wanted[0]} ")) == wanted
    for word in wanted:
        assert "aborted" in served.ok("abort", word).out
    for one in running:
        one.communicate(timeout=30)
    wait_until(lambda: shell.candidates("enginectl abort -e t ") == [], 10.0, "no ids left")


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("bash", "data/bash-completion/completions/enginectl"),
        ("zsh", "data/zsh/site-functions/_enginectl"),
        ("fish", "config/fish/completions/enginectl.fish"),
    ],
)
def test_the_script_is_printed_or_put_into_a_directory_of_the_user(ctl: Ctl, name: str, place: str) -> None:
    ctl.env |= {"XDG_DATA_HOME": str(ctl.base / "data"), "XDG_CONFIG_HOME": str(ctl.base / "config")}
    printed = ctl.ok("completion", name).out
    assert printed == SCRIPTS[name].read_text()
    before = set(ctl.base.rglob("*"))
    document = ctl.ok("completion", name, "--install", "-o", "json").document
    assert (document["path"], document["changed"]) == (str(ctl.base / place), True)
    assert (ctl.base / place).read_text() == printed
    assert {path for path in set(ctl.base.rglob("*")) - before if path.is_file()} == {ctl.base / place}
    again = ctl.ok("completion", name, "--install")
    assert again.out == f"{ctl.base / place}   (there already)\n"


def test_nobody_installs_without_a_home(ctl: Ctl) -> None:
    result = ctl("completion", "bash", "--install", HOME="")
    assert result.code == 2
    assert "HOME is not set" in result.err
    assert ctl("completion", "tcsh").code == 2
