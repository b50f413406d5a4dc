"""Usage rollups beside the passes: Jobs one at a time, results read or refused with a reason, and
no pass waits for them.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from lab.process import patience, wait_until
from tests.doubles.kubernetes import InMemoryKubernetes
from tests.goldens.golden import numbers
from tests.unit.control.stage import Stage
from tidegate.control.controller import Controller
from tidegate.control.report.conditions import UNSEEN_AFTER_SECONDS, Truth, Verdict, rollups_current
from tidegate.control.rollups import RollupDependencies, RollupLook, RollupProgress, RollupWatch
from tidegate.errors import Unauthorized, Unreachable
from tidegate.kube.api import BROKER_BANDWIDTH_POLICIES, JsonObject, ObjectRef
from tidegate.kube.rollup_jobs import RESULT_KEY, RollupResult, encode
from tidegate.resources.rollup import Rollup
from tidegate.rollup.tables.iceberg import LOGIN_VARIABLES
from tidegate.settings import RollupOffer, Settings
from tidegate_logic.model import DirectionUsage, Entity, QuotaKey, Usage
from tidegate_logic.reasons import Reason
from tidegate_logic.rollup_schedule import SETTLE_MS, Due, JobState, Window, WindowJob

HOUR = 3600.0
CREATED = datetime(2026, 11, 22, 4, tzinfo=UTC)
NOW = CREATED.timestamp() + 3 * HOUR + SETTLE_MS / 1000
ROLLUP = {"storage": {"url": "s3://usage"}}
METRICS = {"prometheus": {"url": "http://prometheus:9090"}}
KAFKA = {
    "bootstrapServers": "kafka:9092",
    "quotaStore": "ZooKeeper",
    "zookeeper": {"connect": "zk:2181"},
}
OFFER = RollupOffer(image="tidegate:test", service_account="rollup")


class Desk:
    """A Kubernetes with one policy that asks for rollups, and the looks at them."""

    def __init__(self, **rollup: Any) -> None:
        self.kubernetes = InMemoryKubernetes()
        self.now, self.may_write, self.counts = NOW, True, list[str]()
        spec = {
            "mode": "Enforce",
            "kafka": KAFKA,
            "metrics": METRICS,
            "rollup": {**ROLLUP, **rollup},
        }
        made = self.kubernetes.create(
            BROKER_BANDWIDTH_POLICIES,
            {"metadata": {"name": "orders", "namespace": "streaming"}, "spec": spec},
        )
        self.ref = ObjectRef.of(BROKER_BANDWIDTH_POLICIES, made)
        self.kubernetes.edit(
            self.ref, lambda raw: raw["metadata"].update(creationTimestamp="2026-11-22T04:00:00Z")
        )
        self.spec = Rollup.model_validate_json(json.dumps(spec["rollup"]))
        self.looker = RollupLook(
            self.kubernetes,
            OFFER,
            may_write=lambda: self.may_write,
            wall=lambda: self.now,
            count=self.counts.append,
        )

    def look(self) -> RollupProgress:
        return self.looker.look(self.kubernetes.get(self.ref), self.spec)

    def jobs(self) -> list[str]:
        found = self.kubernetes.list_jobs(
            "streaming", selector="app.kubernetes.io/component=rollup"
        )
        return [job["metadata"]["name"] for job in found]

    def finish(self, name: str, condition: str = "Complete") -> None:
        at = datetime.fromtimestamp(self.now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.kubernetes.finish_job(
            "streaming", name, condition=condition, at=at, message="it ended"
        )

    def write(self, text: str) -> None:
        self.kubernetes.write_config_map(
            "streaming", {"metadata": {"name": "orders-rollup"}, "data": {RESULT_KEY: text}}
        )

    def write_result(
        self,
        *,
        published_hours: int,
        empty_hours: int = 0,
        uid: str | None = None,
        valid_hours: float = 24.0,
    ) -> None:
        start_ms = round(CREATED.timestamp() * 1000)
        window = Window(start_ms, start_ms + published_hours * 3_600_000)
        empty = (
            (Window(window.end_ms, window.end_ms + empty_hours * 3_600_000),) if empty_hours else ()
        )
        usage = Usage(
            7,
            NOW,
            {(Entity("alice"), QuotaKey.PRODUCER_BYTE_RATE): DirectionUsage(6e6, 2e6, 3, 1.0, 0.0)},
        )
        valid_ms = round((NOW + valid_hours * HOUR) * 1000)
        self.write(
            encode(
                RollupResult(
                    uid or self.ref.uid, round(NOW * 1000), valid_ms, (window,), usage, empty
                )
            )
        )

    def verdict(self, progress: RollupProgress, *, later_seconds: float = 0.0) -> Verdict:
        (verdict,) = rollups_current(
            progress, wanted=True, previous={}, now_seconds=self.now + later_seconds
        )
        return verdict


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_gaps_are_filled_oldest_first_and_one_at_a_time(desk: Desk) -> None:
    for _ in range(2):
        desk.look()
    assert desk.jobs() == ["orders-rollup-202611220400-60m"]
    desk.finish("orders-rollup-202611220400-60m")
    desk.look()
    assert desk.jobs() == ["orders-rollup-202611220400-60m", "orders-rollup-202611220500-60m"]
    assert desk.counts == ["made", "made"]


def test_what_jobs_wrote_down_is_not_computed_again(desk: Desk) -> None:
    desk.write_result(published_hours=3)
    progress = desk.look()
    assert (desk.jobs(), desk.verdict(progress).reason) == ([], Reason.ROLLUPS_PUBLISHED)


def test_hours_without_samples_in_prometheus_are_reported_and_no_failure(
    desk: Desk, golden: Callable[[str], None]
) -> None:
    desk.write_result(published_hours=2, empty_hours=1)
    verdict = desk.verdict(desk.look())
    assert (desk.jobs(), verdict.status, verdict.reason) == (
        [],
        Truth.TRUE,
        Reason.ROLLUPS_PUBLISHED,
    )
    assert numbers(verdict.message) == {1.0}
    golden(verdict.message)


def test_a_job_takes_the_proxy_for_prometheus_and_no_other(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGATE_PROMETHEUS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("HTTPS_PROXY", "http://other.example:3128")
    desk.look()
    (job,) = desk.kubernetes.list_jobs("streaming", selector="app.kubernetes.io/component=rollup")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    proxies = {one["name"]: one.get("value") for one in container["env"] if "PROXY" in one["name"]}
    assert proxies == {"TIDEGATE_PROMETHEUS_PROXY": "http://proxy.example:3128"}


def test_a_replica_that_may_not_write_makes_no_job(desk: Desk) -> None:
    desk.may_write = False
    desk.look()
    assert desk.jobs() == []


def test_a_job_that_another_replica_made_first_is_no_trouble(desk: Desk) -> None:
    other = Desk()
    other.kubernetes, other.ref = desk.kubernetes, desk.ref
    desk.look()
    hidden = desk.kubernetes.list_jobs
    desk.kubernetes.list_jobs = lambda *_, **__: []  # type: ignore[method-assign]  # as it was before the other made it
    assert desk.look().trouble is None
    desk.kubernetes.list_jobs = hidden  # type: ignore[method-assign]
    assert len(desk.jobs()) == 1


def test_a_failed_window_is_reported_with_its_cause_and_the_next_goes_on(
    desk: Desk, golden: Callable[[str], None]
) -> None:
    desk.look()
    desk.finish("orders-rollup-202611220400-60m", "Failed")
    desk.now += 120
    verdict = desk.verdict(desk.look())
    assert (verdict.status, verdict.reason) == (Truth.FALSE, Reason.ROLLUP_FAILED)
    for named in (
        "2026-11-22T04:00:00Z",
        "2026-11-22T05:00:00Z",
        "Test: it ended",
        "orders-rollup-202611220400-60m",
    ):
        assert named in verdict.message
    assert "orders-rollup-202611220500-60m" in desk.jobs()
    golden(verdict.message)


def test_a_failure_of_an_older_spec_is_deleted_and_tried_again(desk: Desk) -> None:
    desk.look()
    desk.finish("orders-rollup-202611220400-60m", "Failed")
    desk.kubernetes.edit(desk.ref, lambda raw: raw["spec"]["rollup"].update(intervalSeconds=3600))
    desk.look()
    assert "orders-rollup-202611220400-60m" not in desk.jobs()


def test_a_job_of_a_policy_that_had_the_name_before_counts_for_nothing(desk: Desk) -> None:
    desk.look()
    desk.kubernetes._jobs["streaming", "orders-rollup-202611220400-60m"]["metadata"][
        "ownerReferences"
    ][0]["uid"] = "another"
    assert desk.look().due.active is None  # type: ignore[union-attr]


@pytest.mark.parametrize(("text", "cause"), [("", "not JSON"), ("[1]", "schemaVersion")])
def test_a_result_that_cannot_be_read_is_reported_and_not_used(
    desk: Desk, text: str, cause: str
) -> None:
    desk.write(text)
    verdict = desk.verdict(desk.look())
    assert (verdict.status, verdict.reason) == (Truth.FALSE, Reason.ROLLUP_RESULT_UNUSABLE)
    assert cause in verdict.message


def test_the_result_of_another_policy_is_not_used(desk: Desk) -> None:
    desk.write_result(published_hours=3, uid="another")
    progress = desk.look()
    assert (progress.usage, desk.verdict(progress).reason) == (None, Reason.ROLLUP_RESULT_UNUSABLE)


def test_figures_count_until_their_end_and_then_are_reported_as_stale(desk: Desk) -> None:
    desk.write_result(published_hours=3, valid_hours=0.5)
    assert desk.look().usage is not None
    desk.now += 0.6 * HOUR
    progress = desk.look()
    assert (progress.usage, desk.verdict(progress).reason) == (None, Reason.ROLLUP_RESULT_STALE)


def test_a_kubernetes_that_is_away_leaves_the_last_figures_in_force(desk: Desk) -> None:
    desk.write_result(published_hours=3)
    desk.look()
    desk.kubernetes.fail_with(Unreachable(Reason.KUBERNETES_UNREACHABLE, "no answer"))
    progress = desk.looker.look(
        {"metadata": {"name": "orders", "namespace": "streaming", "uid": desk.ref.uid}}, desk.spec
    )
    assert progress.usage is not None
    assert (desk.verdict(progress).status, desk.verdict(progress).reason) == (
        Truth.UNKNOWN,
        Reason.KUBERNETES_UNREACHABLE,
    )


def test_a_job_that_kubernetes_refuses_is_reported_with_its_message(desk: Desk) -> None:
    refused = Unauthorized("Tidegate could not create Job: quota exceeded")

    def refuse(*_: object) -> JsonObject:
        raise refused

    desk.kubernetes.create_job = refuse  # type: ignore[method-assign]
    verdict = desk.verdict(desk.look())
    assert (verdict.status, verdict.reason, verdict.message) == (
        Truth.FALSE,
        Reason.NOT_AUTHORIZED,
        refused.message,
    )
    assert desk.counts == ["refused"]


def test_a_look_that_does_not_end_becomes_unknown_and_not_current(desk: Desk) -> None:
    desk.write_result(published_hours=3)
    verdict = desk.verdict(desk.look(), later_seconds=UNSEEN_AFTER_SECONDS + 1)
    assert (verdict.status, verdict.reason) == (Truth.UNKNOWN, Reason.ROLLUPS_UNSEEN)


def test_windows_that_wait_are_counted(desk: Desk, golden: Callable[[str], None]) -> None:
    verdict = desk.verdict(desk.look())
    assert (verdict.status, verdict.reason) == (Truth.FALSE, Reason.ROLLUPS_BEHIND)
    assert numbers(verdict.message) == {3}
    golden(verdict.message)


def test_a_policy_that_wants_none_any_more_has_the_condition_once_and_others_never() -> None:
    previous = {"conditions": [{"type": "RollupsCurrent", "status": "True"}]}
    (verdict,) = rollups_current(None, wanted=False, previous=previous, now_seconds=0.0)
    assert verdict.reason is Reason.ROLLUPS_NOT_WANTED
    assert rollups_current(None, wanted=False, previous={}, now_seconds=0.0) == ()


def test_no_pass_waits_for_a_look_that_hangs(desk: Desk) -> None:
    let_go = threading.Event()

    class Hanging(RollupLook):
        def look(self, *_: object) -> RollupProgress:
            let_go.wait(patience(30))
            return RollupProgress(0.0)

    hanging = Hanging(desk.kubernetes, OFFER, may_write=lambda: True, wall=lambda: NOW)
    watch = RollupWatch(
        "streaming/orders", RollupDependencies(lambda: hanging, lambda: None, lambda: NOW)
    )
    assert watch.latest(desk.kubernetes.get(desk.ref), desk.spec) is None
    let_go.set()
    watch.close()


def test_a_watch_wakes_its_policy_when_something_new_is_seen_and_not_else(desk: Desk) -> None:
    wakes: list[float] = []
    dependencies = RollupDependencies(
        lambda: desk.looker, lambda: wakes.append(desk.now), lambda: desk.now, every_seconds=0.01
    )
    watch = RollupWatch("streaming/orders", dependencies)
    policy = desk.kubernetes.get(desk.ref)
    wait_until(
        lambda: (seen := watch.latest(policy, desk.spec)) and seen.due and seen.due.active,
        "the Job to be seen",
        timeout_seconds=20,
    )
    watch.close()
    assert 1 <= len(wakes) <= 2


def test_a_policys_own_loop_has_its_jobs_made_and_reports_them() -> None:
    stage = Stage(now=NOW)
    stage.world = replace(stage.world, settings=Settings(identity="", rollups=OFFER))
    ref = stage.policy(created="2026-11-22T04:00:00Z", metrics=METRICS, rollup=ROLLUP)
    stage.run()
    try:
        wait_until(lambda: jobs_of(stage), "the first Job", timeout_seconds=20)
        stage.run()
    finally:
        stage.controllers["streaming/orders"].close()
    (job,) = jobs_of(stage)
    assert job["spec"]["template"]["spec"]["serviceAccountName"] == "rollup"
    assert job["metadata"]["ownerReferences"][0]["uid"] == ref.uid
    assert stage.condition(ref, "RollupsCurrent") == ("False", "RollupsBehind")
    assert stage.kubernetes.get(ref)["status"]["rollup"] == {
        "publishedUntil": "2026-11-22T04:00:00Z",
        "waiting": 3,
        "failed": 0,
    }
    assert (
        stage.telemetry.registry.get_sample_value(
            "tidegate_rollup_windows_waiting", {"policy_namespace": "streaming", "policy": "orders"}
        )
        == 3
    )
    assert (
        stage.telemetry.registry.get_sample_value(
            "tidegate_rollup_jobs_total",
            {"policy_namespace": "streaming", "policy": "orders", "result": "made"},
        )
        == 1
    )


def jobs_of(stage: Stage) -> list[JsonObject]:
    found: list[JsonObject] = stage.kubernetes.list_jobs(
        "streaming", selector="app.kubernetes.io/component=rollup"
    )
    return found


def test_transitions_are_events_and_none_comes_twice() -> None:
    stage = Stage(now=NOW)
    stage.policy(metrics=METRICS, rollup=ROLLUP)
    stage.run()
    broken = Due(
        missing=(Window(0, 300_000),),
        failed=(WindowJob("job", Window(0, 300_000), JobState.FAILED, message="OutOfMemory"),),
    )
    for found in (Due(), Due(), broken, broken, Due(published_until_ms=300_000)):
        stage.controllers["streaming/orders"]._rollups = FixedProgress(
            RollupProgress(stage.now, due=found)
        )  # type: ignore[assignment]
        stage.run()
    events = [
        (event.type, event.reason)
        for event in stage.kubernetes.events
        if event.reason.startswith("Rollup")
    ]
    assert events == [
        ("Warning", "RollupsNotOffered"),
        ("Normal", "RollupsPublished"),
        ("Warning", "RollupFailed"),
        ("Normal", "RollupsPublished"),
    ]


def test_without_an_image_nothing_is_asked_and_the_condition_names_what_to_do() -> None:
    stage = Stage(now=NOW)
    ref = stage.policy(metrics=METRICS, rollup=ROLLUP)
    stage.run()
    assert stage.condition(ref, "RollupsCurrent") == ("False", "RollupsNotOffered")
    assert stage.condition(ref) == ("True", "InSync")


def test_applied_recommendations_become_quotas_and_are_in_the_tiers_status() -> None:
    stage = Stage(now=NOW)
    ref = stage.policy(
        metrics=METRICS,
        rollup={**ROLLUP, "recommend": {"apply": "WithinPercent", "maxChangePercent": 20}},
    )
    tier = stage.tier(rate="10M")
    stage.run()
    stage.now += 30  # no reading comes
    stage.run()
    assert stage.produce() == "10000000"
    usage = Usage(
        7,
        NOW,
        {(Entity("alice"), QuotaKey.PRODUCER_BYTE_RATE): DirectionUsage(60e6, 20e6, 3, 1.0, 0.0)},
    )
    controller = stage.controllers["streaming/orders"]
    controller._rollups = FixedProgress(RollupProgress(NOW, usage=usage))  # type: ignore[assignment]  # the real one has a thread
    stage.run()
    (member,) = stage.kubernetes.get(tier)["status"]["members"]
    assert stage.produce() == "12000000"
    assert (member["recommended"]["produce"], member["recommended"]["applied"]) == (
        26_000_000,
        {"produce": 12_000_000},
    )
    assert member["recommended"]["reason"] == "RecommendationApplied"
    assert stage.kubernetes.get(ref)["spec"]["rollup"]["recommend"]["maxChangePercent"] == 20


@pytest.mark.parametrize("looked", [True, False])
def test_after_a_take_over_recommended_contracts_hold_until_the_result_was_read(
    desk: Desk, *, looked: bool
) -> None:
    stage = Stage(now=NOW)
    stage.policy(
        metrics=METRICS,
        rollup={**ROLLUP, "recommend": {"apply": "WithinPercent", "maxChangePercent": 20}},
    )
    tier = stage.tier(rate="10M")
    stage.run()
    stage.now += 30  # no reading comes
    stage.run()
    usage = Usage(
        7,
        NOW,
        {(Entity("alice"), QuotaKey.PRODUCER_BYTE_RATE): DirectionUsage(60e6, 20e6, 3, 1.0, 0.0)},
    )
    read = FixedProgress(RollupProgress(NOW, usage=usage))
    stage.controllers["streaming/orders"]._rollups = read  # type: ignore[assignment]
    stage.run()
    stage.restart()
    stage.tier("new", user="bob")
    stage.controllers["streaming/orders"] = Controller(
        "streaming/orders", stage.world, may_write=lambda: True, wake=lambda _: None
    )
    desk.kubernetes.fail_with(Unreachable(Reason.KUBERNETES_UNREACHABLE, "no answer"))
    policy = {"metadata": {"name": "orders", "namespace": "streaming", "uid": desk.ref.uid}}
    awaits = FixedProgress(desk.looker.look(policy, desk.spec) if looked else None)
    stage.controllers["streaming/orders"]._rollups = awaits  # type: ignore[assignment]
    stage.run()
    stage.now += 30
    stage.run()
    assert stage.produce() == "12000000"
    assert stage.produce(Entity(user="bob")) == "10000000", "a first quota waits for no result"
    assert "has not been read yet" in stage.message(tier)
    stage.controllers["streaming/orders"]._rollups = read  # type: ignore[assignment]
    stage.run()
    assert (stage.produce(), stage.condition(tier)) == ("12000000", ("True", "Contract"))


def test_a_result_that_may_not_be_read_is_not_waited_for(desk: Desk) -> None:
    policy, away = desk.kubernetes.get(desk.ref), Unreachable(Reason.KUBERNETES_UNREACHABLE, "no")
    awaited = []
    for failure in (Unauthorized("Kubernetes refused to read ConfigMap"), away, None, away):
        desk.kubernetes.fail_with(failure)
        awaited.append(desk.looker.look(policy, desk.spec).unread)
    assert awaited == [False, True, False, False], "what was read before counts"


class FixedProgress:
    """A RollupWatch with the progress of the test."""

    def __init__(self, progress: RollupProgress | None) -> None:
        self.progress = progress

    def latest(self, *_: object) -> RollupProgress | None:
        return self.progress

    def close(self) -> None:
        pass


def test_the_settings_of_a_process_offer_no_rollups_by_themselves() -> None:
    assert Settings(identity="").rollups is None


# --- the volume of the tables ---------------------------------------------------------------------


VOLUME = {"url": "file:///var/lib/usage", "claimName": "usage"}


@pytest.mark.parametrize("labels", [None, {}, {"tidegate.io/usage-tables": "false"}])
def test_no_job_mounts_a_volume_that_is_not_meant_for_tables(
    labels: dict[str, str] | None,
) -> None:
    desk = Desk(storage=VOLUME)
    if labels is not None:
        desk.kubernetes.put_claim("streaming", "usage", labels)
    trouble = desk.look().trouble
    assert trouble is not None
    assert trouble[0] is Reason.CLAIM_NOT_ALLOWED
    assert "streaming/usage" in trouble[1]
    assert desk.jobs() == []
    desk.kubernetes.put_claim("streaming", "usage", {"tidegate.io/usage-tables": "true"})
    assert desk.look().trouble is None
    assert len(desk.jobs()) == 1


def test_a_refused_volume_reads_like_this(golden: Callable[[str], None]) -> None:
    desk = Desk(storage=VOLUME)
    desk.kubernetes.put_claim("streaming", "usage", {})
    golden(f"{(desk.look().trouble or ('', ''))[1]}")


# --- the login of a bucket, and the catalog -------------------------------------------------------


ELSEWHERE = {
    "url": "s3://usage/orders",
    "endpoint": "https://minio:9000",
    "credentialsSecretRef": {"name": "minio"},
}


def secrets_of(job: JsonObject) -> set[str]:
    (container,) = job["spec"]["template"]["spec"]["containers"]
    return {
        entry["valueFrom"]["secretKeyRef"]["name"]
        for entry in container["env"]
        if "secretKeyRef" in entry.get("valueFrom", {})
    }


def test_a_policy_uses_only_a_secret_that_is_labelled_for_policies() -> None:
    desk = Desk(storage=ELSEWHERE)
    desk.kubernetes.put_secret("streaming", "minio", {"AWS_ACCESS_KEY_ID": b"a"}, labels={})
    trouble = desk.look().trouble
    assert trouble is not None
    assert trouble[0] is Reason.SECRET_NOT_ALLOWED
    assert "streaming/minio" in trouble[1]
    assert desk.jobs() == []
    desk.kubernetes.put_secret("streaming", "minio", {"AWS_ACCESS_KEY_ID": b"a"})
    assert desk.look().trouble is None
    (job,) = desk.kubernetes.list_jobs("streaming", selector="app.kubernetes.io/component=rollup")
    assert secrets_of(job) == {"minio"}


def test_a_job_gets_the_catalogs_login_and_what_it_is_exchanged_with() -> None:
    catalog = {"type": "rest", "uri": "https://catalog:8181", "warehouse": "lake"}
    storage = {**ELSEWHERE, "catalog": catalog, "credentialsSecretRef": {"name": "lake"}}
    desk = Desk(storage=storage)
    desk.kubernetes.put_secret("streaming", "lake", {"ICEBERG_TOKEN": b"a"})
    assert desk.look().trouble is None
    (job,) = desk.kubernetes.list_jobs("streaming", selector="app.kubernetes.io/component=rollup")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    given = {
        entry["name"]: entry["valueFrom"]["secretKeyRef"]
        for entry in container["env"]
        if entry["name"] in LOGIN_VARIABLES
    }
    assert given == {
        name: {"name": "lake", "key": name, "optional": True} for name in LOGIN_VARIABLES
    }


@pytest.mark.parametrize(
    ("storage", "secrets"),
    [
        ({"url": "s3://usage/orders"}, {"orders-bucket"}),
        # its login is for an address of its own, not for one of the policy's
        ({"url": "s3://usage/orders", "endpoint": "https://minio:9000"}, set()),
        (
            {"url": "s3://usage/orders", "catalog": {"type": "rest", "uri": "https://catalog"}},
            set(),
        ),
    ],
)
def test_a_secret_that_no_policy_names_goes_to_no_address_of_a_policy(
    storage: dict[str, Any], secrets: set[str]
) -> None:
    desk = Desk(storage=storage)
    desk.look()
    (job,) = desk.kubernetes.list_jobs("streaming", selector="app.kubernetes.io/component=rollup")
    assert secrets_of(job) == secrets


def test_a_catalog_that_could_not_be_told_is_a_condition_and_no_failed_job() -> None:
    catalog = {"type": "rest", "uri": "https://catalog"}

    def told(why: str | None, **storage: object) -> tuple[RollupProgress, Verdict]:
        desk, window = Desk(storage={"url": "s3://usage/orders", **storage}), CREATED.timestamp()
        start_ms, until_ms = round(window * 1000), round((NOW + HOUR) * 1000)
        published = (Window(start_ms, start_ms + 3 * 3_600_000),)
        result = RollupResult(desk.ref.uid, start_ms, until_ms, published, catalog_problem=why)
        desk.write(encode(result))
        progress = desk.look()
        return progress, desk.verdict(progress)

    progress, verdict = told("The catalog is unreachable.", catalog=catalog)
    assert (verdict.status, verdict.reason) == (Truth.FALSE, Reason.CATALOG_BEHIND)
    assert "The catalog is unreachable" in verdict.message
    assert progress.trouble is None
    assert told(None, catalog=catalog)[1].reason is Reason.ROLLUPS_PUBLISHED
    assert (
        told("The catalog is unreachable.")[1].reason is Reason.ROLLUPS_PUBLISHED
    )  # it has none any more
