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
    assert main(["console", "--kubeconfig", nothing]) == 1
    assert "Or add --play, which needs no cluster." in capfd.readouterr().err


@pytest.mark.parametrize(
    "content", [b"{:", b"- one\n", b"text", b"\xff\xfe\x00", b"contexts: 5\n", b"users: [5]\n"]
)
@pytest.mark.parametrize("command", ["plan", "pause orders", "console"])
def test_a_damaged_kubeconfig_is_named_and_not_a_bug(
    command: str, content: bytes, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    kubeconfig = tmp_path / "damaged"
    kubeconfig.write_bytes(content)
    assert main([*command.split(), "--kubeconfig", str(kubeconfig)]) == 1
    shown = capfd.readouterr().err
    assert is_plain(shown), shown
    assert "bug" not in shown
    assert f"does not know how to reach Kubernetes from {kubeconfig}: " in shown


def test_doctor_says_that_brokers_refuse_where_the_ledger_may_be_in_zookeeper(
    tmp_path: Path, policy: Any, tier: Any, nobody: str, capfd: pytest.CaptureFixture[str]
) -> None:
    policy["spec"]["kafka"] = {"bootstrapServers": nobody, "zookeeper": {"connect": nobody}}
    files = tmp_path / "all.yaml"
    files.write_text(yaml.safe_dump_all([policy, tier]))
    assert main(["doctor", "-f", str(files), "-o", "json"]) == 1
    shown = capfd.readouterr().out
    (found,) = [one for one in json.loads(shown)["findings"] if one["check"] == "kafka"]
    assert (found["state"], found["reason"]) == ("problem", "BrokersUnreachable")
    assert f"{nobody}: connection refused" in found["what"]
    assert "Secret" not in shown


def test_what_may_have_been_done_is_not_said_to_be_repeatable(
    world: Any, policy: Any, tier: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.kubernetes.create(BROKER_BANDWIDTH_POLICIES, policy)
    world.kubernetes.create(BUSINESS_TIERS, tier)

    def broken(*_: object) -> None:
        raise OutcomeUnknown("The connection broke.", consequence="It is read back first.")

    monkeypatch.setattr(world.kubernetes, "annotate", broken)
    answer = world.run("pause", "orders")
    assert answer.code == 1
    assert answer.err.splitlines() == [
        "error: The connection broke.",
        "It may have taken effect: check before you run the command again.",
    ]


def test_top_shows_one_cause_once_and_ends_with_1(
    world: Any, policy: Any, tier: Any, golden: Callable[[str], None]
) -> None:
    tier["spec"]["members"] += [
        {**tier["spec"]["members"][0], "name": name, "user": name} for name in ("bob", "eve")
    ]
    error = Unreachable(
        Reason.BROKERS_UNREACHABLE,
        "No broker answered (kafka-1:9092: connection refused).",
        consequence="Every quota stays as it is.",
        advice="Check bootstrapServers.",
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
