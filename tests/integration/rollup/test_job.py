"""`tidegate rollup job` and `backfill` for a policy on a real API server, with exactly the rights
of examples/rollup/.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab.iceberg import RestCatalog, open_duckdb
from lab.kubernetes.api import KubeApi
from lab.process import wait_until
from tests.goldens.golden import numbers
from tests.integration.rollup.history_server import HistoryServer
from tests.integration.rollup.known_history import END_MS, RATES, SCRAPE_MS, START_MS, moved
from tests.unit.resources.documents import ABSENT, policy, tier
from tidegate.cli import main
from tidegate.commands.context import CommandContext
from tidegate.commands.inputs import spec_changed_ms
from tidegate.kube.rollup_jobs import RESULT_KEY, RollupResult, decode
from tidegate.rollup.entities import read_entities
from tidegate.rollup.labels import labels_of
from tidegate.rollup.schemas import HOUR_MS
from tidegate.rollup.tables.publication import Publication, publish
from tidegate.rollup.tables.store import UsageStore
from tidegate_logic.model import Entity, QuotaKey
from tidegate_logic.rollup_schedule import Window

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("spark")]

RIGHTS = Path(__file__).parents[3] / "examples" / "rollup" / "rights.yaml"
LAST_HOUR = ("--window-start=2026-01-01T23:00:00Z", "--window-end=2026-01-02T00:00:00Z")
BOTH_HOURS = ("--from=2026-01-01T22:00:00Z", "--to=2026-01-02T00:00:00Z")


@dataclass(frozen=True)
class RollupCommands:
    """One policy in a namespace of its own, and the Jobs' account there."""

    kube: KubeApi
    namespace: str
    kubeconfig: Path
    store: UsageStore

    def call(
        self, command: str, *arguments: str, policy: str = "orders", now_ms: int = END_MS + 300_000
    ) -> tuple[int, str]:
        output = io.StringIO()
        context = CommandContext(out=output, err=output, now_seconds=lambda: now_ms / 1000)
        named = f"--policy={self.namespace}/{policy}"
        return main(
            ["rollup", command, named, f"--kubeconfig={self.kubeconfig}", *arguments], context
        ), output.getvalue()

    def result(self) -> RollupResult:
        found = json.loads(
            self.kube.kubectl(
                "get", "configmap", "orders-rollup", "-n", self.namespace, "-o", "json"
            )
        )
        assert found["metadata"]["ownerReferences"][0]["kind"] == "BrokerBandwidthPolicy"
        return decode(found["data"][RESULT_KEY])

    def bytes_by_user(self) -> Mapping[str, int]:
        rows = (
            self.store.rows("usage_1h", START_MS, END_MS)
            .group_by("user")
            .aggregate([("bytes", "sum")])
        )
        return dict(zip(rows["user"].to_pylist(), rows["bytes_sum"].to_pylist(), strict=True))


@pytest.fixture
def commands(
    crds: KubeApi, namespace: str, known_history: HistoryServer, tmp_path: Path
) -> RollupCommands:
    folder = tmp_path / "usage"
    folder.mkdir()
    rights = RIGHTS.read_text().replace("namespace: streaming", f"namespace: {namespace}")
    crds.kubectl("apply", "-n", namespace, "-f", "-", input=rights)
    crds.kubectl(
        "create", "secret", "generic", "prometheus", "-n", namespace, "--from-literal=token=unused"
    )
    crds.kubectl("label", "secret", "prometheus", "-n", namespace, "tidegate.io/credentials=true")
    crds.kubectl(
        "apply",
        "-f",
        "-",
        input=json.dumps(
            {
                "apiVersion": "v1",
                "kind": "List",
                "items": declared(namespace, known_history.url, folder),
            }
        ),
    )
    token = crds.kubectl(
        "create", "token", "tidegate-rollup", "-n", namespace, "--duration=1h"
    ).strip()
    kubeconfig = crds.kubeconfig_for(token=token, path=tmp_path / "kubeconfig")
    return RollupCommands(crds, namespace, kubeconfig, UsageStore.at(f"file://{folder}"))


def declared(namespace: str, url: str, folder: Path) -> list[dict[str, Any]]:
    orders = policy({"allowedTiers": ABSENT, "allowedEntities": ABSENT})
    gold = tier({"policyRef.namespace": ABSENT})
    spec = orders["spec"]
    spec["metrics"] = {
        "prometheus": {
            "url": url,
            "insecure": True,
            "authentication": {
                "type": "bearer",
                "tokenSecret": {"secretName": "prometheus", "token": "token"},
            },
        },
        "preset": "NodeExporter",
        "brokerIdentity": {"label": "broker"},
        "scrapeIntervalSeconds": SCRAPE_MS // 1000,
        "staleAfterSeconds": 45,
    }
    spec["rollup"] = {
        "storage": {"url": f"file://{folder}", "claimName": "usage"},
        "executors": {"instances": 2},
    }
    gold["spec"]["members"] = [
        {"name": "alice", "user": "alice", "contract": {"perBroker": {"fetch": "2M"}}}
    ]
    for item in (orders, gold):
        item["metadata"]["namespace"] = namespace
    return [orders, gold]


def test_a_job_publishes_its_window_and_a_result_for_the_operator(commands: RollupCommands) -> None:
    code, output = commands.call("job", *LAST_HOUR)
    assert code == 0, output
    assert commands.bytes_by_user() == {user: moved(user) for user in RATES}
    result = commands.result()
    assert any(
        window.start_ms <= END_MS - HOUR_MS and window.end_ms == END_MS
        for window in result.published
    )
    assert result.usage is not None
    alice = result.usage.figures[Entity("alice"), QuotaKey.CONSUMER_BYTE_RATE]
    assert (alice.p99_total, alice.p99_busiest, alice.brokers) == (
        2.0 * RATES["alice"],
        RATES["alice"],
        2,
    )
    assert alice.coverage == pytest.approx(
        3 / 168, abs=1e-4
    )  # the hour before the two was computed as well: samples may come late


@pytest.mark.long  # of the catalog itself test_iceberg has as much
def test_a_catalog_that_is_away_fails_no_job_and_is_told_by_the_next(
    commands: RollupCommands, tmp_path: Path
) -> None:
    def asked(uri: str) -> tuple[int, str]:
        catalog = {"type": "rest", "uri": uri, "namespace": "orders"}
        spec = json.dumps({"spec": {"rollup": {"storage": {"catalog": catalog}}}})
        commands.kube.kubectl(
            "patch", "bbp", "orders", "-n", commands.namespace, "--type=merge", "-p", spec
        )
        return commands.call("job", *LAST_HOUR)

    code, output = asked("http://127.0.0.1:9")
    assert code == 0, output
    result = commands.result()
    assert result.catalog_problem is not None
    assert "catalog of type rest" in result.catalog_problem
    assert any(window.end_ms == END_MS for window in result.published)
    with RestCatalog(tmp_path / "catalog") as rest, open_duckdb() as reader:
        code, output = asked(rest.uri)
        assert code == 0, output
        reader.attach(rest.uri)
        by_user = 'select "user", sum(bytes)::bigint from lake.orders.usage_1h group by all'
        found = dict(reader.ask(by_user))
    assert commands.result().catalog_problem is None
    # a Job also computes what of the last day is missing, which here is an hour more than was asked
    stored = commands.store.rows("usage_1h").group_by("user").aggregate([("bytes", "sum")])
    assert found == {row["user"]: row["bytes_sum"] for row in stored.to_pylist()}
    assert found.keys() == RATES.keys()


def test_a_label_that_somebody_changed_counts_from_the_change_of_the_tier_on(
    commands: RollupCommands,
) -> None:
    """Kubernetes keeps when a tier's spec was changed; the Job that sees it runs an hour later."""

    def tier_now() -> Mapping[str, Any]:
        asked = ["get", "bt", "reporting", "-n", commands.namespace, "-o", "json"]
        found: Mapping[str, Any] = json.loads(
            commands.kube.kubectl(*asked, "--show-managed-fields")
        )
        return found

    def changed_ms() -> int:
        return spec_changed_ms(tier_now()) or 0

    first_ms = int(time.time() * 1000)
    assert commands.call("job", *LAST_HOUR, now_ms=first_ms)[0] == 0
    looked_ms = int(time.time() * 1000)
    created_ms = changed_ms()
    assert 0 < created_ms <= first_ms
    # Kubernetes keeps whole seconds, so the change has to be in a later one
    wait_until(lambda: time.time() * 1000 > looked_ms + 1000, "a second", timeout_seconds=5)
    labels = json.dumps({"spec": {"labels": {"team": "shop"}}})
    commands.kube.kubectl(
        "patch", "bt", "reporting", "-n", commands.namespace, "--type=merge", "-p", labels
    )
    # what the operator writes into the status is no change of the tier
    commands.kube.kubectl(
        *("patch", "bt", "reporting", "-n", commands.namespace, "--subresource=status"),
        *("--type=merge", "-p", json.dumps({"status": {"observedGeneration": 2}})),
    )
    assert created_ms < changed_ms() <= int(time.time() * 1000)
    code, output = commands.call("job", *LAST_HOUR, now_ms=first_ms + HOUR_MS)
    assert code == 0, output
    rows = [
        (labels_of(one.labels)["team"], one.from_ms, one.to_ms)
        for one in read_entities(commands.store).memberships
    ]
    assert rows == [("reporting", first_ms, changed_ms()), ("shop", changed_ms(), None)]


def test_a_backfill_fills_what_is_missing_and_then_finds_nothing(commands: RollupCommands) -> None:
    code, output = commands.call("backfill", *BOTH_HOURS, "--dry-run=client")
    assert (code, 2 in numbers(output)) == (0, True), output
    assert commands.store.windows("usage_5m") == []
    code, output = commands.call("backfill", *BOTH_HOURS)
    assert code == 0, output
    assert set(commands.result().published) == {Window(START_MS, END_MS)}
    code, output = commands.call("backfill", *BOTH_HOURS)
    assert (code, 2 in numbers(output)) == (0, True), output
    assert set(commands.result().published) == {Window(START_MS, END_MS)}


def test_hours_without_history_are_named_and_all_others_filled(commands: RollupCommands) -> None:
    code, output = commands.call(
        "backfill", "--from=2025-12-31T10:00:00Z", "--to=2026-01-01T00:00:00Z"
    )
    assert code == 1
    (left_out,) = [
        line
        for line in output.splitlines()
        if "2025-12-31T10:00:00Z" in line and "2026-01-01T00:00:00Z" in line
    ][-1:]
    assert left_out


@pytest.mark.parametrize(
    ("policy", "window", "code", "message"),
    [
        ("missing", LAST_HOUR, 64, "BrokerBandwidthPolicy"),
        (
            "orders",
            ("--window-start=2026-01-01T23:00:00Z", "--window-end=2026-01-02T01:00:00Z"),
            64,
            "",
        ),
        ("orders", ("--window-start=soon", "--window-end=later"), 64, "'soon'"),
    ],
)
def test_an_error_that_needs_a_person_is_not_retried(
    commands: RollupCommands, policy: str, window: tuple[str, str], code: int, message: str
) -> None:
    found, output = commands.call("job", *window, policy=policy)
    assert found == code, output
    assert message in output.splitlines()[-1]


def test_an_hour_before_all_history_is_recorded_as_empty_once_brokers_have_samples(
    commands: RollupCommands,
) -> None:
    code, output = commands.call(
        "job", "--window-start=2025-12-31T03:00:00Z", "--window-end=2025-12-31T04:00:00Z"
    )
    assert (code, "2025-12-31T03:00:00Z to 2025-12-31T04:00:00Z" in output) == (0, True), output
    result = commands.result()
    assert (result.published, [(one.end_ms - one.start_ms) // HOUR_MS for one in result.empty]) == (
        (),
        [1],
    )
    assert commands.store.windows("usage_5m") == []


def test_an_hour_without_samples_stays_open_while_there_are_no_later_samples(
    commands: RollupCommands,
) -> None:
    """Prometheus may be of the wrong cluster or may not have started again, so it is not certain
    that the hour is lost.
    """
    window = ("--window-start=2026-01-03T03:00:00Z", "--window-end=2026-01-03T04:00:00Z")
    code, output = commands.call("job", *window, now_ms=END_MS + 34 * HOUR_MS)
    assert code == 64, output


def test_tables_of_another_version_are_left_alone(commands: RollupCommands) -> None:
    empty = Publication(table="usage_5m", window_start_ms=START_MS, run_id="a", staged=[])
    path = Path(commands.store.storage.address(publish(commands.store, empty, now_ms=END_MS).path))
    path.write_text(path.read_text().replace('"schemaVersion": 2', '"schemaVersion": 99'))
    code, output = commands.call("job", *LAST_HOUR)
    assert (code, 99 in numbers(output.splitlines()[-1])) == (65, True), output


def test_a_job_without_rights_reports_that(commands: RollupCommands) -> None:
    commands.kube.kubectl("delete", "rolebinding", "tidegate-rollup", "-n", commands.namespace)
    code, output = commands.call("job", *LAST_HOUR)
    assert (code, "forbidden" in output.lower()) == (77, True), output


def test_an_error_that_may_pass_is_retried(commands: RollupCommands) -> None:
    away = json.dumps({"spec": {"metrics": {"prometheus": {"url": "http://127.0.0.1:9"}}}})
    commands.kube.kubectl(
        "patch", "bbp", "orders", "-n", commands.namespace, "--type=merge", "-p", away
    )
    code, output = commands.call("job", *LAST_HOUR)
    assert (code, "http://127.0.0.1:9" in output) == (1, True), output
