from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from enginectl.errors import Exit
from enginectl.errors_help import ERRORS
from enginectl.group import build, tidy
from enginectl.tree import command_tree, leaves
from enginectl.verbs import VERBS
from tools.generate import ROOT, generated, stale


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    return generated()


def test_what_is_committed_is_what_the_code_says(files: dict[str, str]) -> None:
    assert stale(files) == [], "run `make docs`"


def test_a_changed_a_missing_and_a_left_over_file_are_noticed(files: dict[str, str]) -> None:
    changed = files | {"man/enginectl.1": "other", "man/new.1": ""}
    del changed["completions/enginectl.fish"]
    assert stale(changed) == ["man/enginectl.1", "man/new.1", "completions/enginectl.fish"]


def test_every_page_that_is_promised_is_there(files: dict[str, str]) -> None:
    verbs = ("start", "stop", "drain", "restart", "call", "abort", "generate", "top", "requests", "wait")
    wanted = {"enginectl.1", "enginectl.toml.5", "enginectl-exit-status.7", *(f"enginectl-{verb}.1" for verb in verbs)}
    assert {name.removeprefix("man/") for name in files if name.startswith("man/")} == wanted


def test_each_page_has_the_options_of_its_verb_and_no_others(files: dict[str, str]) -> None:
    for command in leaves(command_tree()):
        text = files.get(f"man/enginectl-{command.name}.1")
        if text is None:
            continue
        options = text[text.index(".SH OPTIONS") :].split(".SH", 2)[1]
        found = set(re.findall(r"^\\fB(\\-[^ ]*)\\fR", options, re.MULTILINE))
        first = {option.names[0].replace("-", r"\-") for option in command.options}
        assert found == first, command.name


def test_help_says_what_the_tree_says() -> None:
    for command in command_tree():
        found = build(VERBS[command.path[0]])
        with found.context_class(found, info_name="x", **found.context_settings) as ctx:
            rows = [
                tidy(param.get_help_record(ctx)) for param in found.get_params(ctx) if param.param_type_name == "option"
            ]
            page = found.get_help(ctx)
        assert [text for _, text in rows] == [option.help for option in command.options]
        assert all(name in page for option in command.options for name in option.names)


def test_the_table_of_exit_codes_is_the_one_in_the_code(files: dict[str, str]) -> None:
    page, docs = files["man/enginectl-exit-status.7"], files["docs/errors.md"]
    for code in Exit:
        assert f"\\fB{int(code)}\\fR\n" in page
        assert f"\n| {int(code)} | " in docs
    for name in ERRORS:
        assert f"\\fB{name}\\fR\n" in page
        assert f"### {name}: " in docs


def test_every_variable_that_is_read_is_on_a_page(files: dict[str, str]) -> None:
    told = files["man/enginectl.1"] + files["man/enginectl.toml.5"]
    for folder in ("enginectl", "engine"):
        for path in (ROOT / folder).rglob("*.py"):
            for name in re.findall(r"[\"']?(ENGINECTL_[A-Z_]*[A-Z])\b(?!=)", path.read_text()):
                assert name in told or name in ("ENGINECTL_K", "ENGINECTL_X", "ENGINECTL_KEY"), (path, name)


def test_links_to_pages_lead_somewhere(files: dict[str, str]) -> None:
    for name, text in files.items():
        if name.startswith("man/"):
            for page, section in re.findall(r"\\fB(enginectl[a-z.\\-]*)\\fR\((\d)\)", text):
                assert f"man/{page.replace(chr(92), '')}.{section}" in files, (name, page)


def test_the_wheel_ships_each_file(files: dict[str, str]) -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        shared = tomllib.load(file)["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"]
    assert set(shared) == {name for name in files if name.startswith(("man/", "completions/"))}
    for source, target in shared.items():
        if source.startswith("man/"):
            assert target == f"share/man/man{source[-1]}/{Path(source).name}"
