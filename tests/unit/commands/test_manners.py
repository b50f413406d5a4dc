"""Kubectl's manners: help with examples, options before the command, the namespace in which a
command writes, and a reader that leaves.
"""

import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from lab.process import patience
from tidegate.cli import app, main
from tidegate.commands.examples import EXAMPLES, count_of
from tidegate.commands.help_page import HelpfulCommand
from tidegate.errors import Unauthorized
from tidegate.kube.api import (
    BROKER_BANDWIDTH_POLICIES,
    BUSINESS_TIERS,
    QUOTA_OVERRIDES,
    ObjectRef,
    ResourceKind,
)
from tidegate.kube.client import context_namespace

ROOT = Path(__file__).parents[3]


def every_command() -> Iterator[tuple[str, Any]]:
    group: Any = typer.main.get_command(app)
    for name, command in group.commands.items():
        inner = getattr(command, "commands", None)
        if inner is None:
            yield name, command
        else:
            yield from ((f"{name} {below}", one) for below, one in inner.items())


COMMANDS = dict(every_command())


# --- help -----------------------------------------------------------------------------------------


def test_every_command_has_examples_and_none_is_of_a_command_that_is_gone() -> None:
    """Each is on docs/cli.md too, whose command lines are tried as they are typed."""
    assert EXAMPLES.keys() == COMMANDS.keys()
    assert all(count_of(name) in (2, 3) for name in EXAMPLES)
    assert all(len(line) <= 78 for text in EXAMPLES.values() for line in text.splitlines())


@pytest.mark.parametrize("name", COMMANDS, ids=str)
def test_help_opens_with_its_sentence_and_examples_and_has_types_of_people(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert isinstance(COMMANDS[name], HelpfulCommand)
    assert main([*name.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    usage, summary, examples = shown.split("\n\n")[:3]
    assert usage.startswith(f"Usage: tidegate {name} ")
    assert summary.strip().endswith(".")
    assert examples.splitlines()[0] == "Examples:"
    assert textwrap.indent(EXAMPLES[name], "  ") in shown
    assert not re.search(r"<(int|str|float|path|list|bool|file)|x[<>]=|<=x", shown), shown
    assert "Policy and Kubernetes:" in shown or "--kubeconfig" not in shown


def test_a_kubectl_plugin_shows_itself_in_its_examples(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/kubectl-tidegate", "audit", "--help"])
    assert main() == 0
    shown = capsys.readouterr().out
    assert "kubectl logs -n tidegate deploy/tidegate | kubectl tidegate audit" in shown


def test_without_a_command_there_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["--kubeconfig", "x"]):
        assert main(words) == 0
        assert capsys.readouterr().out.startswith("Usage: tidegate ")


def test_a_report_is_what_report_does_without_a_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["report"]) == 1
    assert "Missing option '--store'" in capsys.readouterr().err


def test_a_value_that_does_not_fit_is_refused_without_a_librarys_words(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["completion", "powershell"]) == 1
    shown = capsys.readouterr().err
    assert "'powershell' is not one of 'bash', 'zsh', 'fish'" in shown
    assert "Value error" not in shown


# --- options before the command -------------------------------------------------------------------


@pytest.fixture
def stored(world: Any, policy: Any, tier: Any) -> ObjectRef:
    world.now = 1_795_417_805.25
    made = world.kubernetes.create(BROKER_BANDWIDTH_POLICIES, policy)
    world.kubernetes.create(BUSINESS_TIERS, tier)
    return ObjectRef.of(BROKER_BANDWIDTH_POLICIES, made)


@pytest.mark.parametrize(
    "first",
    [["--as", "bob"], ["-n", "streaming", "--as=bob"], ["--debug", "-A", "--as", "bob"]],
    ids=" ".join,
)
def test_options_of_kubectl_may_stand_before_the_command(
    world: Any, stored: ObjectRef, first: list[str]
) -> None:
    answer = world.run(*first, "plan", "orders", "-o", "jsonpath={.policy}")
    assert (answer.out, world.asked_as) == ("streaming/orders", ["bob"])


def test_they_stand_before_a_command_in_a_group_too(world: Any, stored: ObjectRef) -> None:
    asked = ["--user", "alice", "--exempt", "--for", "1h", "--reason", "x"]
    assert world.run("--as", "bob", "override", "create", *asked).code == 0
    assert world.asked_as == ["bob"]


def test_one_that_the_command_does_not_have_is_refused(
    world: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert world.run("--kubeconfig", "x", "version").code == 1
    assert "No such option: --kubeconfig" in capsys.readouterr().err


# --- the namespace in which a command writes ------------------------------------------------------

WRITING = {
    "pause": ["pause"],
    "resume": ["resume"],
    "confirm-removal": ["confirm-removal", "--yes"],
    "resync": ["resync"],
    "ledger": ["ledger", "accept"],
    "override": [
        *("override", "create", "--user", "alice", "--exempt", "--for", "1h", "--reason", "x")
    ],
}


@pytest.mark.parametrize("named", [[], ["orders"]], ids=["no name", "name"])
@pytest.mark.parametrize("command", WRITING)
def test_nothing_is_written_in_a_namespace_that_was_not_named(
    world: Any, stored: ObjectRef, command: str, named: list[str]
) -> None:
    world.context_namespace = "default"
    before = world.kubernetes.get(stored)
    answer = world.run(*WRITING[command], *named)
    assert answer.code == 1
    assert "in namespace default" in answer.err
    assert "Elsewhere there is streaming/orders: name it so, or add -n streaming." in answer.err
    assert world.kubernetes.get(stored) == before
    assert list(world.kubernetes.list_all(QUOTA_OVERRIDES)) == []


def test_who_may_list_one_namespace_only_is_not_told_of_others(
    world: Any, stored: ObjectRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = world.kubernetes.list_all

    def list_all(kind: ResourceKind, namespaces: Sequence[str] = ()) -> Any:
        if not namespaces:
            raise Unauthorized("Kubernetes refused it (403): no.")
        return listed(kind, namespaces)

    world.context_namespace = "default"
    monkeypatch.setattr(world.kubernetes, "list_all", list_all)
    answer = world.run("pause", "orders")
    assert answer.code == 1
    assert answer.err.splitlines() == [
        "error: There is no BrokerBandwidthPolicy orders in namespace default (known: none)."
    ]


@pytest.mark.parametrize(
    "named", [["streaming/orders"], ["orders", "-n", "streaming"], ["-n", "streaming"]], ids=str
)
def test_a_namespace_that_was_named_counts_before_the_contexts(
    world: Any, stored: ObjectRef, named: list[str]
) -> None:
    world.context_namespace = "default"
    assert world.run("pause", *named).code == 0
    assert "annotations" in world.kubernetes.get(stored)["metadata"]


def test_a_policy_of_the_same_name_elsewhere_is_left_alone(
    world: Any, stored: ObjectRef, policy: Any
) -> None:
    other = {**policy, "metadata": {"name": "orders", "namespace": "default"}}
    ref = ObjectRef.of(
        BROKER_BANDWIDTH_POLICIES, world.kubernetes.create(BROKER_BANDWIDTH_POLICIES, other)
    )
    world.context_namespace = "default"
    assert world.run("pause", "orders").code == 0
    assert "annotations" in world.kubernetes.get(ref)["metadata"]
    assert "annotations" not in world.kubernetes.get(stored)["metadata"]


def test_commands_that_read_search_every_namespace_as_before(world: Any, stored: ObjectRef) -> None:
    world.context_namespace = "default"
    assert world.run("plan", "-o", "jsonpath={.policy}").out == "streaming/orders"


@pytest.mark.parametrize("command", WRITING)
def test_a_dry_run_is_client_or_none_and_sends_nothing(
    world: Any, stored: ObjectRef, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = world.kubernetes.get(stored)
    assert world.run(*WRITING[command], "orders", "--dry-run=server").code == 1
    assert "'server' is not one of 'none', 'client'" in capsys.readouterr().err
    assert world.run(*WRITING[command], "orders", "--dry-run=client").code in (1, 2)
    assert world.kubernetes.get(stored) == before


KUBECONFIG = {
    "current-context": "one",
    "contexts": [
        {"name": "one", "context": {"cluster": "c", "user": "u", "namespace": "streaming"}},
        {"name": "two", "context": {"cluster": "c", "user": "u"}},
    ],
    "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
    "users": [{"name": "u", "user": {}}],
}


@pytest.mark.parametrize(
    ("context", "namespace"), [(None, "streaming"), ("two", "default"), ("none", "default")]
)
def test_the_namespace_is_that_of_the_kubeconfigs_context(
    tmp_path: Path, context: str | None, namespace: str
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(KUBECONFIG))
    assert context_namespace(path, context) == namespace
    assert context_namespace(tmp_path / "nothing", context) == "default"


def test_an_override_is_printed_without_any_cluster(
    world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(*_: object) -> None:
        raise AssertionError("Kubernetes is asked")

    world.now = 1_795_417_805.25
    monkeypatch.setattr(world, "opened_kubernetes", asked)
    common = ["--user", "alice", "--for", "2h", "--reason", "x", "--dry-run=client", "-o", "yaml"]
    rates = ["--fetch", "40M", "--form", "perPartition"]
    for more, namespace in (([], "streaming"), (["-n", "other"], "other")):
        answer = world.run("override", "create", "orders", *rates, *common, *more)
        assert (answer.code, answer.err) == (2, "")
        printed = yaml.safe_load(answer.out)
        assert printed["metadata"]["namespace"] == namespace
        assert printed["spec"]["policyRef"] == {"name": "orders"}
        assert printed["spec"]["rates"] == {"perPartition": {"fetch": "40M"}}
    answer = world.run("override", "create", "other/orders", "--exempt", *common, "-o", "table")
    assert answer.code == 2
    assert "whether a tier of policy other/orders has this member" in answer.out


def test_what_only_a_cluster_knows_is_named_where_there_is_none(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    asked = ["--user", "alice", "--fetch", "40M", "--for", "2h", "--reason", "x"]
    asked += ["--dry-run=client", "--kubeconfig", str(tmp_path / "nothing")]
    assert main(["override", "create", "orders", *asked]) == 1
    shown = capfd.readouterr().err
    assert "give --form with rates" in shown
    assert "-f FILE" not in shown


# --- a reader that leaves -------------------------------------------------------------------------


def piped(command: str) -> subprocess.CompletedProcess[str]:
    script = f"set -o pipefail; {shlex.quote(sys.executable)} -m tidegate {command}"
    return subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, cwd=ROOT, timeout=patience(60)
    )


def test_a_reader_that_leaves_is_no_error() -> None:
    """The output is larger than a pipe, so that writing it fails once nobody reads."""
    done = piped("simulate examples/simulate/ -o json | head -1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "{\n", "")
    done = piped("simulate examples/simulate/ | true")
    assert (done.returncode, done.stderr) == (0, "")


def test_an_error_stays_one_though_nobody_reads() -> None:
    done = piped("simulate README.md | true")
    assert done.returncode == 1
    assert "error:" in done.stderr
