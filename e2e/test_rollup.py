"""Usage rollups as Pods: scheduled by the operator, with executors; whichever is killed, the tables
are whole and the same.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pyarrow.compute as pc
import pytest

from e2e.cluster import Cluster
from e2e.declared import MB, policy, tier, watching
from e2e.kafka_side import KafkaSide
from e2e.login import Login
from e2e.release import Release
from e2e.rollup_history import USERS, bytes_of, made_up_history, window
from e2e.rollups import ACCOUNT, Rollups, in_bucket, on_claim, rolling_up, shown, tables_in
from e2e.scene import Scenario
from image import ROLLUP, build
from lab import object_stores
from lab.episodes import Business, fill_topic, running_clients
from lab.iceberg import RestCatalog
from lab.kafka import KafkaLab
from lab.kubernetes.kind import KindLab
from lab.object_stores import ObjectStore
from lab.process import wait_until
from lab.prometheus import PrometheusLab
from tests.integration.rollup.history_server import HistoryServer
from tidegate.resources.rollup import RollupStorage
from tidegate.rollup.tables import iceberg
from tidegate.rollup.tables.iceberg import CatalogSettings
from tidegate.rollup.tables.store import UsageStore
from tidegate_logic.words import rfc3339_ms

pytestmark = pytest.mark.timeout(1500)
EVERY_MS = 300_000


@pytest.fixture(scope="module")
def image(kubernetes: Cluster) -> str:
    """The image of rollup Jobs, on the node."""
    if not isinstance(kubernetes, KindLab):
        pytest.skip(
            "only nodes of the lab have a folder for the tables that this machine sees, too"
        )
    built = build(edition=ROLLUP)
    kubernetes.load_image(built.archive)
    return built.name


@pytest.fixture
def rollups(
    scene: Scenario, kubernetes: Cluster, release: Release, image: str
) -> Iterator[Rollups]:
    """The operator offers rollups in the scenario's namespace."""
    offered = {
        "enabled": "true",
        "executors.enabled": "true",
        "image": image,
        "namespaces": f"{{{scene.namespace}}}",
    }
    values: dict[str, Any] = {f"rollup.{name}": value for name, value in offered.items()}
    release.upgrade(**values)
    opened = Rollups(scene, kubernetes, image)
    yield opened
    release.upgrade()
    opened.delete_volumes()


@pytest.fixture(scope="module")
def history(kafka: KafkaLab) -> Iterator[HistoryServer]:
    with made_up_history(kafka) as server:
        yield server


@pytest.fixture
def declared(
    scene: Scenario, rollups: Rollups, kafka: KafkaLab, history: HistoryServer
) -> Callable[[str], Any]:
    """Makes a policy with a store of its own, whose windows are so long that the operator makes no
    Job meanwhile.
    """

    def declare(name: str) -> Any:
        store = rollups.volume(name)
        source = {"url": history.url, "authentication": Login.authentication(), "insecure": True}
        metrics = {
            "prometheus": source,
            "preset": "NodeExporter",
            "brokerIdentity": {"label": "broker"},
        }
        scene.declare(
            policy(
                kafka,
                name=name,
                mode="Observe",
                metrics=metrics,
                **rolling_up(on_claim(name), interval_seconds=86_400),
            )
        )
        return store

    return declare


def test_whoever_is_killed_the_tables_are_those_of_an_undisturbed_run(
    rollups: Rollups, declared: Callable[[str], Any], kubernetes: Cluster, scene: Scenario
) -> None:
    undisturbed, without_executor, without_driver = (
        declared(name) for name in ("calm", "executor", "driver")
    )

    rollups.wait_for(rollups.start("calm", *window()))
    expected = tables_in(undisturbed)
    within = undisturbed.rows("usage_1h", *(round(edge.timestamp() * 1000) for edge in window()))
    users = within.group_by("user").aggregate([("bytes", "sum")])
    assert dict(zip(users["user"].to_pylist(), users["bytes_sum"].to_pylist(), strict=True)) == {
        user: bytes_of(user) for user in USERS
    }
    rollups.wait_until_no_executor_is_left()

    job = rollups.start("executor", *window())
    killed, *_ = rollups.wait_for_executors(2)
    wait_for_any_file(without_executor, "_staging")
    rollups.kill(killed)
    rollups.wait_for(job)
    assert tables_in(without_executor) == expected
    assert len(rollups.drivers(job)) == 1

    job = rollups.start("driver", *window())
    wait_for_any_file(without_driver, "_manifests")
    rollups.kill(rollups.drivers(job)[0])
    rollups.wait_for(job)
    assert tables_in(without_driver) == expected

    rollups.wait_until_no_executor_is_left()
    assert_every_right_was_needed(kubernetes, scene)


def test_a_job_that_can_never_succeed_is_not_tried_again_and_says_why(
    rollups: Rollups, declared: Callable[[str], Any]
) -> None:
    declared("orders")
    start, _ = window()
    job = rollups.start("orders", start.replace(hour=3), start.replace(hour=4))
    wait_until(
        lambda: rollups.jobs("orders")[job] == "Failed",
        f"Job {job} to fail",
        timeout_seconds=200,
        poll_seconds=0.5,
    )
    assert len(rollups.drivers(job)) == 1
    assert rollups.last_words(job).splitlines()[-1].startswith("error: ")


@pytest.fixture(scope="module")
def bucket(kafka: KafkaLab) -> Iterator[ObjectStore]:
    """S3 on the lab's bridge, where Pods reach it."""
    with object_stores.s3(kafka.bridge.gateway) as store, pytest.MonkeyPatch.context() as here:
        for name, value in store.environment.items():
            here.setenv(name, value)
        yield store


@pytest.fixture(scope="module")
def catalog(kafka: KafkaLab, bucket: ObjectStore) -> Iterator[RestCatalog]:
    """An Iceberg catalog there, which writes its own files into the bucket."""
    place = kafka.run.path / "catalog"
    with RestCatalog(place, bucket=bucket, host=kafka.bridge.gateway) as service:
        yield service


def test_a_scheduled_job_publishes_what_was_read_just_now_in_a_bucket_and_a_catalog(
    scene: Scenario,
    rollups: Rollups,
    topic: str,
    kafka: KafkaLab,
    prometheus: PrometheusLab,
    in_kafka: KafkaSide,
    bucket: ObjectStore,
    catalog: RestCatalog,
) -> None:
    scene.credentials("lake", bucket.environment)
    storage = in_bucket(bucket, login="lake", catalog=catalog)
    gold = tier("gold", "L0", {"checkout": 30 * MB}, topic=topic)
    rolled_up = rolling_up(storage, interval_seconds=EVERY_MS // 1000)
    scene.declare(policy(kafka, **watching(prometheus, egress_limit=1000 * MB), **rolled_up), gold)
    in_kafka.wait_for_fetch_quota("checkout", 30 * MB)
    reader = Business("L0", "checkout", 5 * MB, None, contract=30 * MB)
    fill_topic(kafka, topic)
    with running_clients(kafka, [reader], topic=topic, run=topic, prefix="e2e"):
        read_since = rfc3339_ms(round(time.time() * 1000) + EVERY_MS)
        wait_until(
            lambda: published_until(scene) >= read_since,
            "a window of their reading",
            timeout_seconds=1100,
            poll_seconds=2,
        )
    current = scene.waits_for("bbp/orders", "RollupsCurrent")
    assert current["reason"] == "RollupsPublished"

    store = UsageStore.at(RollupStorage.model_validate(storage).address)
    rows = tables_in(store)["usage_5m"].filter(pc.field("user") == "checkout")
    assert pc.sum(rows["bytes"]).as_py() > 100 * MB
    known = iceberg.open_catalog(CatalogSettings("rest", catalog.uri, "orders"), store)
    told = known.load_table("orders.usage_5m").scan("user = 'checkout'").to_arrow()
    assert pc.sum(told["bytes"]).as_py() == pc.sum(rows["bytes"]).as_py()
    assert {one["name"] for one in scene.read("bt/gold")["status"]["members"]} == {"checkout"}
    rollups.wait_until_no_executor_is_left()
    scene.delete("bt/gold", "bbp/orders")
    wait_until(
        lambda: not rollups.jobs("orders"), "the Jobs to go with their policy", timeout_seconds=90
    )


def published_until(scene: Scenario) -> str:
    return str(
        (scene.read("bbp/orders").get("status") or {}).get("rollup", {}).get("publishedUntil", "")
    )


def wait_for_any_file(store: Any, folder: str) -> None:
    wait_until(
        lambda: any((shown(store) / folder).rglob("*.*")),
        f"a file in {folder}",
        timeout_seconds=240,
        poll_seconds=0.05,
    )


def assert_every_right_was_needed(kubernetes: Cluster, scene: Scenario) -> None:
    """What the Jobs' account may do is what they did."""
    assert isinstance(kubernetes, KindLab)
    who = f"system:serviceaccount:{scene.namespace}:{ACCOUNT}"
    calls = [json.loads(line) for line in kubernetes.calls_path.read_text().splitlines()]
    asked = {
        _asked(call) for call in calls if call["user"]["username"] == who and "objectRef" in call
    }
    role = json.loads(scene.kubectl("get", "role", ACCOUNT, "-o", "json"))
    granted = {
        each
        for rule in role["rules"]
        for each in product(rule["apiGroups"], rule["resources"], rule["verbs"])
    }
    # a second Job of the same policy writes over what the first wrote down, and Spark deletes an
    # executor that ended by itself
    assert granted - asked <= {("", "configmaps", "update"), ("", "pods", "delete")}
    assert asked <= granted


def _asked(call: dict[str, Any]) -> tuple[str, str, str]:
    on = call["objectRef"]
    return on.get("apiGroup", ""), on["resource"], call["verb"]
