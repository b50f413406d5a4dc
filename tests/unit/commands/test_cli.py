"""What holds for every command: exit codes, errors for people, the traceback only when asked for,
and the reference page.
"""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from tidegate import __version__
from tidegate.cli import app, main
from tidegate.commands.version import REVISION_VARIABLE
from tidegate.kube.api import BROKER_BANDWIDTH_POLICIES, BUSINESS_TIERS
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


@pytest.mark.parametrize("words", [("plan", "-h"), ("help", "plan"), ("override", "create", "-h")])
def test_help_is_shown_by_habit(
    capsys: pytest.CaptureFixture[str], world: Any, words: tuple[str, ...]
) -> None:
    assert world.run(*words).code == 0
    assert capsys.readouterr().out.startswith(f"Usage: tidegate {words[0]}".replace("help", "plan"))


def test_help_of_a_command_that_is_not_there_is_an_error(world: Any) -> None:
    assert world.run("help", "nothing").code == 1


def test_help_lists_every_command_with_its_own_line(
    capsys: pytest.CaptureFixture[str], world: Any
) -> None:
    world.run("--help")
    shown = capsys.readouterr().out.partition("\nInspect:\n")[2].partition("\n  Exit codes")[0]
    listed = [line.split(maxsplit=1) for line in shown.splitlines() if line.startswith("  ")]
    group: Any = typer.main.get_command(app)
    assert listed == [
        [name, command.get_short_help_str(limit=200)] for name, command in group.commands.items()
    ]
    assert all(command.name == name for name, command in group.commands.items())


def test_every_command_says_what_it_does_in_one_short_line() -> None:
    group: Any = typer.main.get_command(app)
    commands = [*group.commands.values()]
    commands += [one for each in commands for one in getattr(each, "commands", {}).values()]
    said = {
        command.name: (command.help.splitlines()[0], command.get_short_help_str(limit=200))
        for command in commands
    }
    assert len(said) >= 25
    too_long = {name: line for name, lines in said.items() for line in lines if len(line) > 60}
    assert not too_long
    assert all(line.endswith(".") for lines in said.values() for line in lines)


CLIENTS = {
    "tidegate_logic.decide",
    "jinja2",
    "jsonpath",
    "kafka",
    "kazoo",
    "kopf",
    "kubernetes",
    "numpy",
    "pandas",
    "prometheus_api_client",
    "prometheus_client",
    "pyarrow",
    "pyspark",
    "requests",
    "rich",
    "structlog",
    "tenacity",
    "urllib3",
    "yaml",
}
# typer checks values with pydantic; with --help and --version there are none
CHECKS = {"asyncio", "tidegate_logic.model", "logging", "pydantic", "socket", "ssl"}


@pytest.mark.parametrize(
    ("arguments", "environment", "heavy", "shown"),
    [
        (["--help"], {}, CLIENTS | CHECKS, "Watch brokers"),
        (["--version"], {}, CLIENTS | CHECKS, __version__),
        (["completion", "zsh"], {}, CLIENTS, "_tidegate_completion"),
        (
            [],
            {
                "_TIDEGATE_COMPLETE": "complete_bash",
                "COMP_WORDS": "tidegate exp",
                "COMP_CWORD": "1",
            },
            CLIENTS,
            "explain",
        ),
    ],
    ids=["help", "version", "completion", "tab"],
)
def test_what_people_wait_for_imports_no_command_and_no_client(
    tmp_path: Path, arguments: list[str], environment: dict[str, str], heavy: set[str], shown: str
) -> None:
    """What makes it answer at once: these take more than a second of processor to import."""
    script = (
        "import atexit, sys; atexit.register(lambda: print('imported:', *sorted(sys.modules), "
        f"file=sys.stderr)); from tidegate.cli import main; main({arguments!r})"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={**os.environ, **environment},
    )
    imported = ended.stderr.partition("imported:")[2].split()
    assert "tidegate.cli" in imported
    assert set(imported) & heavy == set()
    assert not [name for name in imported if name.startswith("tidegate.kafka")]
    assert shown in ended.stdout


def test_the_help_of_a_command_imports_what_its_options_need_and_no_more() -> None:
    """So that each answers within 0.3 s of processor: these take longer alone, or together."""
    heavy = {"numpy", "pyarrow", "urllib3", "kazoo", "kopf", "kubernetes", "pyspark", "nicegui"}
    heavy |= {f"tidegate.{name}" for name in ("observe", "resources", "control.reconcile")}
    heavy |= {f"tidegate.{name}" for name in ("rollup.schemas", "report.request", "console.server")}
    script = (
        "import sys; from tidegate.cli import _ENTRIES, main; "
        "commands = {name: entry.command(name) for name, entry in _ENTRIES.items()}; "
        "every = [(name, *more) for name, one in commands.items() "
        "for more in [(), *((inner,) for inner in getattr(one, 'commands', ()))]]; "
        "codes = {main([*names, '--help']) for names in every}; "
        "print('imported:', len(every), *codes, *sorted(sys.modules))"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    count, code, *imported = ended.stdout.partition("imported:")[2].split()
    assert (int(count) > 30, code) == (True, "0"), ended.stderr
    assert "tidegate.commands.report" in imported
    assert set(imported) & heavy == set()


@pytest.mark.parametrize("started_as", ["tidegate", "kubectl-tidegate"])
def test_both_entry_points_are_the_same_program_by_its_own_name(
    started_as: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert declared["project"]["scripts"][started_as] == "tidegate.cli:main"
    monkeypatch.setattr(sys, "argv", [f"/usr/bin/{started_as}", "--help"])
    assert main() == 0
    assert f"Usage: {started_as.replace('-', ' ')} [OPTIONS]" in capsys.readouterr().out


def test_the_file_option_is_a_manifest_wherever_it_exists() -> None:
    """-f means what kubectl means by it, in every command."""
    group: Any = typer.main.get_command(app)
    commands = [*group.commands.values()]
    commands += [one for each in commands for one in getattr(each, "commands", {}).values()]
    named = [
        option for each in commands for option in each.params if "-f" in getattr(option, "opts", ())
    ]
    assert len(named) >= 4
    assert all(option.name == "file" and option.multiple for option in named)


@pytest.mark.parametrize(
    ("arguments", "policies", "reason"),
    [
        (["orders"], 2, "several"),
        (["streaming/orders"], 2, ""),
        (["streaming/orders", "--policy", "other/orders"], 2, "Two policies"),
        (["-A", "-n", "streaming"], 1, "contradict"),
        (["-A"], 1, ""),
        (["nowhere"], 1, "no BrokerBandwidthPolicy nowhere"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else str(one),
)
def test_a_policy_is_named_as_kubectl_names_things(
    world: Any,
    policy: Any,
    tier: Any,
    arguments: list[str],
    policies: int,
    reason: str,
) -> None:
    other = {**policy, "metadata": {"name": "orders", "namespace": "other"}}
    for one in [policy, other][:policies]:
        world.kubernetes.create(BROKER_BANDWIDTH_POLICIES, one)
    world.kubernetes.create(BUSINESS_TIERS, tier)
    answer = world.run("plan", *arguments, "-o", "jsonpath={.policy}")
    if reason:
        assert answer.code == 1
        assert reason in answer.err
    else:
        assert (answer.code, answer.out) == (2, "streaming/orders"), answer.err


def test_kubernetes_is_asked_as_the_named_user(world: Any, policy: Any, tier: Any) -> None:
    world.kubernetes.create(BROKER_BANDWIDTH_POLICIES, policy)
    world.kubernetes.create(BUSINESS_TIERS, tier)
    world.run("plan")
    world.run("plan", "--as", "system:serviceaccount:tidegate:tidegate")
    assert world.asked_as == [None, "system:serviceaccount:tidegate:tidegate"]


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
    "command",
    [
        "run",
        "doctor",
        "plan",
        "explain",
        "top",
        "audit",
        "import",
        "pause",
        "resume",
        "override create",
        "confirm-removal",
        "resync",
        "restore",
        "version",
        "completion",
    ],
)
def test_every_command_and_option_is_on_the_reference_page(command: str) -> None:
    assert f"\n## tidegate {command}\n" in cli_page()


def test_the_committed_page_is_what_the_commands_say() -> None:
    assert (ROOT / CLI_PAGE).read_text(encoding="utf-8") == cli_page()
