"""`tidegate run` only fills in the settings: what is given, and the documented defaults for the
rest.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidegate import main
from tidegate.commands import run as module
from tidegate.errors import Unauthorized
from tidegate.settings import LogFormat, LogLevel, PodToken, RollupOffer, SecurityContexts, Settings


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """The settings of each operator that would have run."""
    found: list[Settings] = []
    monkeypatch.setattr(main, "run", found.append)
    return found


@pytest.fixture(autouse=True)
def pod(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file that has a Pod's namespace."""
    path = tmp_path / "namespace"
    path.write_text("platform")
    monkeypatch.setattr(module, "OWN_NAMESPACE_FILE", path)
    return path


def test_without_options_a_pod_watches_its_own_namespace_on_the_documented_ports(
    world: Any, started: list[Settings]
) -> None:
    assert world.run("run").code == 0
    (settings,) = started
    assert (
        settings.lease_namespace,
        settings.namespaces,
        settings.liveness_port,
        settings.metrics_port,
        settings.listen_address,
    ) == ("platform", ("platform",), 8080, 9095, "0.0.0.0")
    assert (settings.log_format, settings.log_level, settings.audit_file) == (
        LogFormat.JSON,
        LogLevel.INFO,
        "-",
    )


def test_namespaces_may_be_named_several_times(world: Any, started: list[Settings]) -> None:
    world.run("run", "-n", "streaming", "--namespace", "payments")
    assert started[0].namespaces == ("streaming", "payments")
    assert started[0].lease_namespace == "platform"


def test_every_namespace_is_watched_only_where_that_is_asked_for(
    world: Any, started: list[Settings]
) -> None:
    world.run("run", "--all-namespaces")
    assert (started[0].namespaces, started[0].lease_namespace) == ((), "platform")
    refused = world.run("run", "-A", "-n", "streaming")
    assert refused.code == 1
    assert "--all-namespaces and --namespace exclude each other" in refused.err
    assert len(started) == 1


def test_beside_a_cluster_the_namespace_of_the_leases_has_to_be_named(
    world: Any, started: list[Settings], pod: Path, golden: Callable[[str], None]
) -> None:
    pod.unlink()
    refused = world.run("run", "-n", "streaming")
    assert (refused.code, started) == (1, [])
    golden(refused.err.replace(str(pod), "FILE"))
    assert world.run("run", "-n", "streaming", "--lease-namespace", "platform").code == 0
    assert started[0].lease_namespace == "platform"


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        (("--kubeconfig", "/tmp/k"), "kubeconfig", "/tmp/k"),
        (("--context", "prod"), "context", "prod"),
        (("--liveness-port", "0"), "liveness_port", 0),
        (("--metrics-port", "9000"), "metrics_port", 9000),
        (("--listen-address", "127.0.0.1"), "listen_address", "127.0.0.1"),
        (("--log-format", "console"), "log_format", LogFormat.CONSOLE),
        (("--log-level", "debug"), "log_level", LogLevel.DEBUG),
        (("--audit-file", "/var/log/audit.jsonl"), "audit_file", "/var/log/audit.jsonl"),
        ((), "rollups", None),
        (("--rollup-image", "tidegate:1"), "rollups", RollupOffer(image="tidegate:1")),
        (
            (
                "--rollup-image",
                "tidegate:1",
                "--rollup-service-account",
                "usage",
                "--rollup-pull-secret",
                "a",
                "--rollup-pull-secret",
                "b",
            ),
            "rollups",
            RollupOffer(image="tidegate:1", service_account="usage", pull_secrets=("a", "b")),
        ),
        (
            ("--rollup-image", "tidegate:1", "--rollup-pod-security-context", '{"fsGroup": 1}'),
            "rollups",
            RollupOffer(image="tidegate:1", security=SecurityContexts(pod={"fsGroup": 1})),
        ),
        (
            ("--rollup-image", "tidegate:1", "--rollup-security-context", "{}"),
            "rollups",
            RollupOffer(image="tidegate:1", security=SecurityContexts(container={})),
        ),
    ],
)
def test_an_option_is_the_setting_of_its_name(
    world: Any, started: list[Settings], options: tuple[str, ...], field: str, value: object
) -> None:
    assert world.run("run", *options).code == 0
    assert getattr(started[0], field) == value


TOKEN = '{"namespace": "shop", "name": "kafka", "audience": "brokers"}'


def test_a_token_of_forwarders_is_an_object(world: Any, started: list[Settings]) -> None:
    longer = TOKEN.replace("}", ', "expirationSeconds": 7200}')
    options = ("--forwarder-image", "f:1", "--forwarder-token", TOKEN, "--forwarder-token", longer)
    assert world.run("run", *options).code == 0
    assert started[0].forwarders is not None
    assert started[0].forwarders.tokens == (
        PodToken("shop", "kafka", "brokers"),
        PodToken("shop", "kafka", "brokers", 7200),
    )


@pytest.mark.parametrize(
    "text",
    [
        "kafka",
        '{"namespace": "shop", "name": "kafka"}',
        TOKEN.replace("}", ', "expirationSeconds": 1}'),
    ],
)
def test_a_token_of_forwarders_that_is_not_whole_starts_nothing(
    world: Any, started: list[Settings], text: str
) -> None:
    refused = world.run("run", "--forwarder-image", "f:1", "--forwarder-token", text)
    assert (refused.code, started) == (1, [])
    assert "--forwarder-token" in refused.err


@pytest.mark.parametrize("text", ["fsGroup: 1", "[1]", "null", ""])
def test_a_security_context_that_is_not_an_object_starts_nothing(
    world: Any, started: list[Settings], text: str
) -> None:
    refused = world.run(
        "run", "--rollup-image", "tidegate:1", "--rollup-pod-security-context", text
    )
    assert (refused.code, started) == (1, [])
    assert f"--rollup-pod-security-context {text!r} is not a JSON object" in refused.err


@pytest.mark.parametrize(
    "options", [("--log-level", "LOUD"), ("--log-format", "xml"), ("--metrics-port", "70000")]
)
def test_an_option_that_means_nothing_starts_nothing(
    world: Any, started: list[Settings], options: tuple[str, ...]
) -> None:
    assert (world.run("run", *options).code, started) == (1, [])


def test_two_processes_on_one_machine_have_different_identities(
    world: Any, started: list[Settings]
) -> None:
    world.run("run")
    world.run("run")
    assert started[0].identity != started[1].identity


def test_an_identity_fits_into_an_event() -> None:
    assert 0 < len(Settings().identity) <= 128


def test_an_operator_that_cannot_start_says_why_and_fails(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = Unauthorized("Tidegate does not know how to reach Kubernetes. Give --kubeconfig FILE.")

    def refuse(_: Settings) -> None:
        raise error

    monkeypatch.setattr(main, "run", refuse)
    answer = world.run("run")
    assert (answer.code, error.message in answer.err) == (1, True)
