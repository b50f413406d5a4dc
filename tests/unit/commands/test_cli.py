"""What holds for every command: exit codes, errors for people, the traceback only when asked for, and the reference page."""

import json
from pathlib import Path
from typing import Any

import pytest

from tidegate.commands.run import REVISION_VARIABLE
from tools.generate import CLI_PAGE, cli_page

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("arguments", [["plan", "--nope"], ["restore", "--max-mute-seconds", "0"], ["plan", "-o", "xml"]], ids=" ".join)
def test_wrong_options_are_errors_so_that_two_always_means_a_change(world: Any, arguments: list[str]) -> None:
    assert world.run(*arguments).code == 1


def test_help_is_no_error(world: Any) -> None:
    assert world.run("--help").code == 0


def test_a_bug_shows_a_sentence_and_its_traceback_only_with_debug(world: Any, policy: Any, tier: Any) -> None:
    world.topology = None  # calling it raises a TypeError, which nobody expects
    quiet = world.plan(policy, tier)
    assert quiet.code == 1
    assert "a bug in Tidegate, TypeError" in quiet.err
    assert "Traceback" not in quiet.err
    assert "Traceback" in world.plan(policy, tier, options=("--debug",)).err


def test_version_says_what_a_bug_report_needs(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REVISION_VARIABLE, "abc123")
    document = json.loads(world.run("version", "--output", "json").out)
    assert document["revision"] == "abc123"
    assert document["customResources"] == "tidegate.io/v1alpha1"
    assert set(document) == {"version", "python", "customResources", "revision"}


@pytest.mark.parametrize("command", ["run", "plan", "explain", "top", "audit", "restore", "version"])
def test_every_command_and_option_is_on_the_reference_page(command: str) -> None:
    assert f"\n## tidegate {command}\n" in cli_page()


def test_the_committed_page_is_what_the_commands_say() -> None:
    assert (ROOT / CLI_PAGE).read_text(encoding="utf-8") == cli_page()
