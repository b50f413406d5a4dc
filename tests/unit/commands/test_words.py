"""What a command says of systems that do not answer: in its own words, each cause once, and without
those of the operator or of a library.
"""

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tidegate.cli import main
from tidegate.commands import words
from tidegate.commands.words import cause_and_advice, own_words
from tidegate.errors import OutcomeUnknown, Unreachable
from tidegate.kube.api import BROKER_BANDWIDTH_POLICIES, BUSINESS_TIERS
from tidegate_logic.reasons import Reason

# nobody says these of a command, whatever it could not reach
FOREIGN = (
    "tries again",
    "uota stays as it is",
    "Errno",
    "NewConnectionError",
    "within 10 s",
    "read back first",
    "Value error",
    "Traceback",
)


def is_plain(text: str) -> bool:
    return not any(word in text for word in FOREIGN)


@pytest.fixture
def nobody() -> str:
    """An address on loopback where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


@pytest.fixture
def unreachable(tmp_path: Path, policy: Any, tier: Any, nobody: str) -> str:
    """Files of a policy with three members, whose brokers refuse the connection."""
    policy["spec"]["kafka"] = {"bootstrapServers": nobody}
    tier["spec"]["members"] += [
        {**tier["spec"]["members"][0], "name": name, "user": name} for name in ("bob", "eve")
    ]
    path = tmp_path / "all.yaml"
    path.write_text(yaml.safe_dump_all([policy, tier]))
    return str(path)


def test_a_plan_whose_brokers_refuse_is_incomplete_and_says_why_once(
    unreachable: str, nobody: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "-f", unreachable]) == 1
    shown = capfd.readouterr().out
    assert is_plain(shown), shown
    assert shown.count("connection refused") == 1
    assert f"No broker answered ({nobody}: connection refused)" in shown
    assert shown.splitlines()[-1] == (
        "The plan is incomplete (BrokersUnreachable): what would be written is not known."
    )


@pytest.mark.parametrize("command", ["explain", "top --once", "doctor", "import", "reassignments"])
def test_no_command_speaks_as_the_operator_of_brokers_that_refuse(
    command: str, unreachable: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([*command.split(), "-f", unreachable]) == 1
    shown = "".join(capfd.readouterr())
    assert is_plain(shown), shown
    assert "connection refused" in shown


def test_an_api_server_that_refuses_is_a_refused_connection(
    nobody: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        yaml.safe_dump(
            {
                "current-context": "x",
                "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
                "clusters": [{"name": "x", "cluster": {"server": f"http://{nobody}"}}],
                "users": [{"name": "x", "user": {}}],
            }
        )
    )
    for command in (["plan"], ["pause", "orders"], ["queues"], ["doctor"]):
        assert main([*command, "--kubeconfig", str(kubeconfig)]) == 1
        shown = "".join(capfd.readouterr())
        assert is_plain(shown), shown
        assert "connection refused" in shown


def test_without_a_kubeconfig_the_way_without_a_cluster_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    nothing = str(tmp_path / "nothing")
    for command in (["plan"], ["top", "--once"], ["explain"]):
        assert main([*command, "--kubeconfig", nothing]) == 1
        shown = capfd.readouterr().err
        assert "there is no kubeconfig" in shown
        assert "-f FILE" in shown
    assert main(["pause", "--kubeconfig", nothing]) == 1
    assert "-f FILE" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("message", "words_of_ours"),
    [
        (
            "No broker at a:1,b:1 answered within 10 s (a:1: [Errno -2] Name or service not known; "
            "b:1: [Errno -2] Name or service not known). Every quota stays as it is. Check x.",
            "No broker answered (a:1, b:1: no such host). Check x.",
        ),
        (
            "No broker at a:1,b:1 answered within 10 s (a:1: [Errno 111] Connection refused; b:1: "
            "timed out). Every quota stays as it is. Check x.",
            "No broker answered within 10 s (a:1: connection refused; b:1: timed out). Check x.",
        ),
        (
            "Kubernetes did not answer, so Tidegate could not list it: ConnectTimeoutError: "
            "Connection to 10.0.0.1 timed out. (connect timeout=5.0). It tries again by itself.",
            "Kubernetes did not answer, so Tidegate could not list it: no connection within 5 s.",
        ),
        (
            "Kubernetes did not answer, so Tidegate could not list it: NameResolutionError: Failed "
            "to resolve 'k8s' ([Errno -3] Temporary failure in name resolution). It tries again "
            "by itself.",
            "Kubernetes did not answer, so Tidegate could not list it: the name of the host cannot "
            "be looked up.",
        ),
        (
            "Tidegate could not list it: Kubernetes refused it (403): no. Give the operator's "
            "ServiceAccount this right.",
            "Tidegate could not list it: Kubernetes refused it (403): no.",
        ),
        (
            "The topics could not be listed in full; every quota stays as it is until they can",
            "The topics could not be listed in full",
        ),
        (
            "ZooKeeper a:1/k did not answer within 10 s (a:1: [Errno 111] Connection refused). "
            "Every quota stays as it is. Check the address.",
            "ZooKeeper a:1/k did not answer (a:1: connection refused). Check the address.",
        ),
        ("A sentence. Another one; and more.", "A sentence. Another one; and more."),
    ],
)
def test_messages_are_put_in_a_commands_words(message: str, words_of_ours: str) -> None:
    assert own_words(message) == words_of_ours


def test_a_zookeeper_that_refuses_is_said_to_refuse(nobody: str) -> None:
    silent = (
        f"ZooKeeper {nobody}/kafka gave no answer within 10 s; the connection was lost or the "
        "server is overloaded. Every quota stays as it is. Tidegate tries again."
    )
    assert own_words(silent) == f"ZooKeeper {nobody}/kafka does not answer: connection refused."
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        taken = f"127.0.0.1:{server.getsockname()[1]}"
        assert own_words(silent.replace(nobody, taken)).startswith(
            f"ZooKeeper {taken}/kafka gave no answer within 10 s"
        )


def test_every_sentence_of_the_operator_in_the_sources_is_known_here() -> None:
    """So that a new one does not reach people by a command."""
    source = Path(words.__file__).parents[1]
    said = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        if "tries again by itself" in path.read_text(encoding="utf-8").replace('"\n', "")
    }
    assert said <= {"kube/client.py", "commands/words.py"}


def test_advice_is_what_stands_at_the_end() -> None:
    assert cause_and_advice("It is wrong. Check this. Set that.") == (
        "It is wrong.",
        "Check this. Set that.",
    )
    assert cause_and_advice("Check this.") == ("Check this.", "")


def test_what_may_have_been_done_is_not_said_to_be_repeatable(
    world: Any, policy: Any, tier: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.kubernetes.create(BROKER_BANDWIDTH_POLICIES, policy)
    world.kubernetes.create(BUSINESS_TIERS, tier)

    def broken(*_: object) -> None:
        raise OutcomeUnknown("The connection broke. It is read back first.")

    monkeypatch.setattr(world.kubernetes, "annotate", broken)
    answer = world.run("pause", "orders")
    assert answer.code == 1
    assert answer.err.splitlines() == [
        "error: The connection broke.",
        "It may have been done: check before you run the command again.",
    ]


def test_top_shows_one_cause_once_and_ends_with_1(
    world: Any, policy: Any, tier: Any, golden: Callable[[str], None]
) -> None:
    tier["spec"]["members"] += [
        {**tier["spec"]["members"][0], "name": name, "user": name} for name in ("bob", "eve")
    ]
    error = Unreachable(
        Reason.BROKERS_UNREACHABLE,
        "No broker at kafka-1:9092 answered within 10 s (kafka-1:9092: [Errno 111] Connection "
        "refused). Every quota stays as it is. Check bootstrapServers.",
    )

    class Silent:
        def read(self, patterns: object, **_: object) -> None:
            raise error

        def close(self) -> None:
            """Nothing was opened."""

    world.topology = Silent
    answer = world.run("top", "--once", "-f", world.write_files(policy, tier))
    assert answer.code == 1
    assert answer.out.count("connection refused") == 1
    assert is_plain(answer.out)
    golden(answer.out)
    document = json.loads(
        world.run("plan", "-f", world.write_files(policy, tier), "-o", "json").out
    )
    assert is_plain(json.dumps(document))
