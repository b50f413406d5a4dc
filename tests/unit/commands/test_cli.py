"""What holds for every command: exit codes, errors for people, the traceback only when asked for,
and the reference page.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from tidegate.cli import app
from tidegate.commands.run import REVISION_VARIABLE
from tools.generate import CLI_PAGE, cli_page

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "arguments",
    [["plan", "--nope"], ["restore", "--max-mute-seconds", "0"], ["plan", "-o", "xml"]],
    ids=" ".join,
)
def test_wrong_options_are_errors_so_that_two_always_means_a_change(
    world: Any, arguments: list[str]
) -> None:
    assert world.run(*arguments).code == 1


def test_help_is_no_error(world: Any) -> None:
    assert world.run("--help").code == 0


def test_help_lists_every_command_with_its_own_line(
    capsys: pytest.CaptureFixture[str], world: Any
) -> None:
    world.run("--help")
    listing = capsys.readouterr().out.partition("Commands:\n")[2].partition("\n\n")[0]
    listed = [line.split(maxsplit=1) for line in listing.splitlines()]
    group: Any = typer.main.get_command(app)
    assert listed == [
        [name, command.get_short_help_str(limit=200)] for name, command in group.commands.items()
    ]
    assert all(command.name == name for name, command in group.commands.items())


def test_help_imports_no_command_and_no_client(tmp_path: Path) -> None:
    """What makes it answer at once: these take more than a second of processor to import."""
    script = (
        "import sys; from tidegate.cli import main; main(['--help']); print('imported:', "
        "*sorted(sys.modules), file=sys.stderr)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    heavy = {
        "pydantic",
        "kubernetes",
        "kafka",
        "kazoo",
        "kopf",
        "rich",
        "yaml",
        "requests",
        "structlog",
        "controller_logic.decide",
    }
    assert heavy & set(ended.stderr.partition("imported:")[2].split()) == set()
    assert "Watch brokers" in ended.stdout


def test_a_command_that_does_not_exist_is_an_error_that_names_it(
    capsys: pytest.CaptureFixture[str], world: Any
) -> None:
    assert world.run("plam").code == 1
    assert "plam" in capsys.readouterr().err


def test_a_bug_shows_a_sentence_and_its_traceback_only_with_debug(
    world: Any, policy: Any, tier: Any, golden: Callable[[str], None]
) -> None:
    world.topology = None  # calling it raises a TypeError, which is a bug
    quiet = world.plan(policy, tier)
    assert quiet.code == 1
    assert "TypeError" in quiet.err
    assert "Traceback" not in quiet.err
    assert "Traceback" in world.plan(policy, tier, options=("--debug",)).err
    golden(quiet.err)


def test_version_says_what_a_bug_report_needs(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REVISION_VARIABLE, "abc123")
    document = json.loads(world.run("version", "--output", "json").out)
    assert document["revision"] == "abc123"
    assert document["customResources"] == "tidegate.io/v1alpha1"
    assert set(document) == {"version", "python", "customResources", "revision"}


@pytest.mark.parametrize(
    "command", ["run", "plan", "explain", "top", "audit", "restore", "version"]
)
def test_every_command_and_option_is_on_the_reference_page(command: str) -> None:
    assert f"\n## tidegate {command}\n" in cli_page()


def test_the_committed_page_is_what_the_commands_say() -> None:
    assert (ROOT / CLI_PAGE).read_text(encoding="utf-8") == cli_page()
