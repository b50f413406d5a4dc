"""Reports of a pass: conditions and Events, statuses that stay right, and quotas that do not wait
for them.
"""

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lab.process import patience, wait_until
from tests.goldens.golden import numbers
from tests.unit.control.stage import ALICE, AWAY, Stage
from tests.unit.control.test_load import LIMITS, METRICS
from tidegate.control.report import reporter
from tidegate.control.report.conditions import Truth, Verdict, ready
from tidegate.control.report.events import WARNING, EventDraft, condition_events, level_events
from tidegate.control.report.reporter import KubernetesPublisher, Report
from tidegate.errors import Unauthorized, Unreachable
from tidegate.kube.api import BROKER_BANDWIDTH_POLICIES, BUSINESS_TIERS, JsonObject, ObjectRef
from tidegate.kube.cache import relist
from tidegate.kube.events import EventRecorder
from tidegate.kube.status import StatusWriter
from tidegate.resources.status import TierStatus
from tidegate_logic.decision import LevelReport, LevelState
from tidegate_logic.model import (
    Default,
    Direction,
    Entity,
    Level,
    NicSpan,
    QuotaKey,
    Readings,
)
from tidegate_logic.reasons import Reason

# --- conditions and Events ------------------------------------------------------------------------
# Conditions and Events agree with the numbers: a quota that is not in sync has its reason, and only
# a warning is a Warning.


PRODUCE = QuotaKey.PRODUCER_BYTE_RATE


def condition(stage: Stage, ref: object, kind: str = "Ready") -> dict[str, Any]:
    return next(
        entry
        for entry in stage.kubernetes.get(ref)["status"]["conditions"]
        if entry["type"] == kind
    )


def test_a_tier_at_its_contract_names_its_rate_and_the_number_of_leaders(
    stage: Stage, golden: Callable[[str], None]
) -> None:
    stage.policy()
    tier = stage.tier()
    stage.run()
    ready = condition(stage, tier)
    assert (ready["reason"], numbers(ready["message"])) == ("Contract", {1, 10.0, 3})
    golden(ready["message"])


@pytest.mark.parametrize("mode", ["Enforce", "Observe"])
@pytest.mark.parametrize("others", [0, 1])
def test_a_policy_names_and_counts_the_tiers_that_cannot_be_read(
    stage: Stage, mode: str, others: int, golden: Callable[[str], None]
) -> None:
    policy = stage.policy(mode=mode)
    broken = stage.tier("gold")
    for _ in range(others):
        stage.tier("silver", user="bob")
    stage.kubernetes.edit(broken, lambda raw: raw["spec"].update(level="L9"))
    stage.run()
    ready = condition(stage, policy)
    assert ready["status"] == "True"
    assert "1 tier cannot be read: streaming/gold" in ready["message"]
    summary = stage.kubernetes.get(policy)["status"]["summary"]
    assert summary["unreadableTiers"] == 1
    golden(ready["message"])
    stage.kubernetes.edit(broken, lambda raw: raw["spec"].update(level="L0"))
    stage.run()
    assert "cannot be read" not in condition(stage, policy)["message"]
    assert "unreadableTiers" not in stage.kubernetes.get(policy)["status"]["summary"]


@pytest.mark.parametrize(("seconds", "is_warned"), [(25, False), (26, True), (120, True)])
def test_a_policy_warns_of_mutes_that_outlast_the_requests_of_clients(
    stage: Stage, seconds: int, is_warned: bool, golden: Callable[[str], None]
) -> None:
    policy = stage.policy(escalation={"maxMuteSeconds": seconds})
    stage.tier()
    stage.run()
    message = condition(stage, policy)["message"]
    assert ("request.timeout.ms" in message) is is_warned
    golden(message)


def test_a_ready_policy_whose_quotas_still_step_counts_them(
    stage: Stage, golden: Callable[[str], None]
) -> None:
    policy = stage.policy()
    stage.tier()
    stage.store.put(ALICE, {PRODUCE: "80000000"})
    stage.run()
    ready = condition(stage, policy)
    assert (ready["status"], ready["reason"]) == ("True", "Stepping")
    assert numbers(ready["message"]) >= {0, 1}
    golden(ready["message"])


def test_a_default_on_its_way_down_is_stepping_and_no_conflict(stage: Stage) -> None:
    policy = stage.policy(defaults={"user": {"produce": "10M"}})
    stage.store.put(Entity(user=Default.DEFAULT), {PRODUCE: "80000000"})
    stage.run()
    assert stage.condition(policy, "QuotasInSync") == ("False", "Stepping")


@pytest.mark.parametrize(
    ("before", "words"),
    [
        ("Contract", "L3 is throttled: broker 1 egress 75 of 50 MB/s"),
        (
            "Relaxing",
            "L3 is throttled again: broker 1 egress 75 of 50 MB/s at first; now 54.5 MB/s",
        ),
    ],
)
def test_a_level_that_is_throttled_again_has_what_is_carried_now(before: str, words: str) -> None:
    previous = {"levels": [{"level": "L3", "state": before}]}
    cause = "broker 1 egress 75 of 50 MB/s"
    one = LevelReport(Level.L3, LevelState.THROTTLED, cause, 0.0, "now 54.5 MB/s", 1, 1)
    (event,) = level_events(previous, [one])
    assert (event.type, event.message) == (WARNING, words)


def test_a_pause_is_no_warning(stage: Stage) -> None:
    policy = stage.policy()
    stage.tier()
    stage.run()
    stage.kubernetes.edit(
        policy, lambda raw: raw["metadata"].update(annotations={"tidegate.io/paused": "true"})
    )
    stage.run()
    assert {event.type for event in stage.kubernetes.events if event.reason == "Paused"} == {
        "Normal"
    }


def test_a_warning_is_not_hidden_by_what_is_normal_for_the_same_reason() -> None:
    verdicts = [
        Verdict("Ready", Truth.TRUE, Reason.TOPIC_NOT_FOUND, "1 of 2 quotas at their contracts"),
        Verdict(
            "QuotasInSync",
            Truth.FALSE,
            Reason.TOPIC_NOT_FOUND,
            "1 of 2 quotas: topic x does not exist",
        ),
    ]
    assert condition_events({}, verdicts) == (
        EventDraft(WARNING, Reason.TOPIC_NOT_FOUND, "1 of 2 quotas: topic x does not exist"),
    )


def stalled(stage: Stage, ref: ObjectRef) -> tuple[str, str]:
    return stage.condition(ref, "Stalled")


def test_nothing_is_stalled_while_all_is_well_or_only_waits(stage: Stage) -> None:
    refs = stage.policy(), stage.tier()
    stage.run()
    assert [stalled(stage, ref)[0] for ref in refs] == ["False", "False"]
    stage.leaders.error = Unreachable(Reason.BROKERS_UNREACHABLE, "No broker answers.")
    stage.run()
    assert [stage.condition(ref)[0] for ref in refs] == ["False", "Unknown"]
    assert [stalled(stage, ref)[0] for ref in refs] == ["False", "False"]


def test_a_policy_that_a_person_must_correct_is_stalled_until_it_is(stage: Stage) -> None:
    policy, tier = stage.policy(), stage.tier()
    stage.run()
    stage.leaders.error = Unauthorized("The brokers refuse this login.")
    stage.run()
    assert (stage.condition(policy), stalled(stage, policy)) == (
        ("False", "NotAuthorized"),
        ("True", "NotAuthorized"),
    )
    assert stalled(stage, tier)[0] == "False"
    events = [event.reason for event in stage.kubernetes.events].count("NotAuthorized")
    stage.run()
    assert [event.reason for event in stage.kubernetes.events].count("NotAuthorized") == events
    stage.leaders.error = None
    stage.run()
    assert stalled(stage, policy) == ("False", "InSync")


def test_a_removal_that_waits_for_confirmation_is_stalled(stage: Stage) -> None:
    policy, tier = stage.policy(), stage.tier()
    stage.run()
    stage.kubernetes.delete(tier)
    stage.run()
    assert (stage.condition(policy), stalled(stage, policy)) == (
        ("False", "RemovalHeld"),
        ("True", "RemovalHeld"),
    )


def test_a_tier_in_conflict_is_stalled_and_one_whose_topic_is_not_there_yet_is_not(
    stage: Stage,
) -> None:
    stage.policy()
    first, second = stage.tier(), stage.tier("silver")
    stage.run()
    assert [stalled(stage, ref)[0] for ref in (first, second)] == ["False", "True"]
    stage.leaders.leaders.clear()
    stage.run()
    assert (stage.condition(first), stalled(stage, first)[0]) == (
        ("False", "TopicNotFound"),
        "False",
    )


def test_an_object_that_does_not_read_is_stalled(stage: Stage) -> None:
    policy, tier = stage.policy(mode="Loud"), stage.tier()
    stage.run()
    assert [stalled(stage, ref) for ref in (policy, tier)] == [("True", "InvalidSpec")] * 2


# --- statuses -------------------------------------------------------------------------------------
# The status of a tier is kept right: neither an outage nor another writer of the status leaves
# something else in it.


def test_a_report_that_could_not_be_delivered_is_delivered_by_the_next_pass(stage: Stage) -> None:
    policy, tier = stage.policy(), stage.tier()
    for kind in (BROKER_BANDWIDTH_POLICIES, BUSINESS_TIERS):
        relist(stage.cache, stage.kubernetes, kind)
    stage.run()
    stage.kubernetes.edit(
        tier,
        lambda raw: raw["spec"]["members"][0]["contract"]["perPartition"].update(produce="20M"),
    )
    relist(stage.cache, stage.kubernetes, BUSINESS_TIERS)
    stage.kubernetes.fail_with(AWAY)
    for _ in range(3):
        stage.run(relisted=False)
    stage.kubernetes.fail_with(None)
    stage.run(relisted=False)
    assert stage.kubernetes.get(tier)["status"]["members"][0]["quota"]["produce"] == 20_000_000
    assert stage.condition(policy) == ("True", "InSync")


def test_a_status_that_another_writer_changed_is_put_right_although_the_report_is_the_same(
    stage: Stage,
) -> None:
    stage.policy()
    tier = stage.tier()
    for _ in range(3):
        stage.run()
    stage.kubernetes.edit(tier, lambda raw: raw["status"]["members"][0]["quota"].update(produce=1))
    stage.run()
    assert stage.kubernetes.get(tier)["status"]["members"][0]["quota"]["produce"] == 10_000_000


def test_a_repair_has_an_event_although_the_report_is_the_same(stage: Stage) -> None:
    stage.policy()
    stage.tier()
    for _ in range(3):
        stage.run()
    count = len(stage.event_reasons())
    stage.store.put(ALICE, {QuotaKey.PRODUCER_BYTE_RATE: "5000000"})
    stage.run()
    assert stage.event_reasons()[count:] == [Reason.REPAIRED.value]


# --- reports beside the passes --------------------------------------------------------------------
# A quota does not wait for Kubernetes to take the report of the pass before, and a late report is
# still right.


class Slow:
    """A call of Kubernetes that waits at a gate; `entered` = one is waiting, `open` lets all
    through.
    """

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call
        self.entered, self._gate = threading.Event(), threading.Event()

    def __call__(self, *args: Any, **named: Any) -> Any:
        self.entered.set()
        assert self._gate.wait(patience(10))
        return self._call(*args, **named)

    def open(self) -> None:
        self._gate.set()


@pytest.fixture
def beside() -> Iterator[Stage]:
    """A policy and its tier gold, for which a whole pass was reported."""
    stage = Stage(report_beside=True)
    stage.policy()
    stage.tier("gold", rate="10M")
    stage.run()
    finish(stage)
    yield stage
    for controller in stage.controllers.values():
        controller.close()


def finish(stage: Stage) -> None:
    """Let every report go out."""
    for controller in stage.controllers.values():
        controller._reports.catch_up()


def gold(stage: Stage) -> JsonObject:
    return next(iter(stage.kubernetes.list_all(BUSINESS_TIERS).items))


def contract(stage: Stage, rate: str) -> None:
    ref = ObjectRef.of(BUSINESS_TIERS, gold(stage))
    stage.kubernetes.edit(
        ref, lambda raw: raw["spec"]["members"][0]["contract"]["perPartition"].update(produce=rate)
    )


def reported_quota(stage: Stage) -> int:
    """The produce quota in the status."""
    return int(gold(stage)["status"]["members"][0]["quota"]["produce"])


def test_changes_are_written_while_a_report_is_under_way_and_all_are_reported_at_the_end(
    beside: Stage,
) -> None:
    beside.kubernetes.patch_status = slow = Slow(beside.kubernetes.patch_status)
    before = len(beside.kubernetes.events)
    for rate in (20, 30, 40):
        contract(beside, f"{rate}M")
        beside.run()
        assert beside.produce() == f"{rate}000000"
        assert slow.entered.wait(patience(10))
    assert reported_quota(beside) == 10_000_000
    slow.open()
    finish(beside)
    assert reported_quota(beside) == 40_000_000
    assert gold(beside)["status"]["observedGeneration"] == gold(beside)["metadata"]["generation"]
    changes = [
        event.note
        for event in beside.kubernetes.events[before:]
        if event.reason == Reason.CONTRACT_CHANGED.value
    ]
    assert [message.partition(" ")[0] for message in changes] == ["1", "2"], (
        changes
    )  # the second report has two writes


def test_a_trouble_that_is_seen_again_before_its_report_is_reported_once(beside: Stage) -> None:
    beside.store.put_raw(ALICE, b"not json")
    beside.kubernetes.patch_status = slow = Slow(beside.kubernetes.patch_status)
    before = len(beside.event_reasons())
    for _ in range(3):
        beside.run(relisted=False)
        assert slow.entered.wait(patience(10))
    slow.open()
    finish(beside)
    assert (
        beside.event_reasons()[before:].count(Reason.FOREIGN_CONTENT.value) == 2
    )  # of the tier, and of the policy


def test_a_bug_in_a_report_is_reported_and_the_next_report_goes_out(
    beside: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    contract(beside, "20M")
    with monkeypatch.context() as patched:
        patched.setattr(
            beside.world.reporter, "passed", Slow(lambda: None)
        )  # takes no report: a TypeError
        beside.world.reporter.passed.open()
        beside.run()
        finish(beside)
    policy = next(iter(beside.kubernetes.list_all(BROKER_BANDWIDTH_POLICIES).items))
    assert beside.condition(ObjectRef.of(BROKER_BANDWIDTH_POLICIES, policy)) == (
        "False",
        Reason.INTERNAL_ERROR.value,
    )
    beside.run()
    finish(beside)
    assert reported_quota(beside) == 20_000_000
    assert beside.condition(ObjectRef.of(BROKER_BANDWIDTH_POLICIES, policy)) == ("True", "InSync")


def test_a_report_that_hangs_is_seen_by_the_probe(beside: Stage) -> None:
    beside.kubernetes.patch_status = slow = Slow(beside.kubernetes.patch_status)
    contract(beside, "20M")
    beside.run()
    assert slow.entered.wait(patience(10))
    beside.now += 600
    assert beside.world.vital_signs.silent_seconds()["reports of streaming/orders"] == 600
    slow.open()
    finish(beside)
    assert beside.world.vital_signs.failure_text() is None


def _publisher(stage: Stage, hands: ThreadPoolExecutor | None) -> KubernetesPublisher:
    return KubernetesPublisher(
        StatusWriter(stage.kubernetes, wall=lambda: stage.now),
        EventRecorder(stage.kubernetes, monotonic=lambda: stage.now),
        cache=stage.cache,
        telemetry=stage.telemetry,
        executor=hands,
        goes_on=stage.world.vital_signs.goes_on,
    )


def _reports(stage: Stage, count: int) -> list[Report]:
    made = [
        stage.kubernetes.create(
            BUSINESS_TIERS, {"metadata": {"name": f"t{n}", "namespace": "streaming"}, "spec": {}}
        )
        for n in range(count)
    ]
    verdict = ready(Truth.TRUE, Reason.CONTRACT, "All members are at their contracted rates")
    return [Report(BUSINESS_TIERS, raw, TierStatus(), (verdict,)) for raw in made]


def test_a_server_that_hangs_costs_all_reports_one_time_limit_and_not_each_of_them() -> None:
    stage, asked = Stage(), list[str]()
    all_began, calls, all_hang = threading.Barrier(10), itertools.count(), threading.Event()

    def hang(ref: ObjectRef, *_: Any, **__: Any) -> None:
        asked.append(ref.name)
        if len(asked) == 4:  # as many as there are hands
            all_hang.set()
        assert all_hang.wait(patience(10))
        raise AWAY

    stage.kubernetes.patch_status = hang
    reports = _reports(stage, 100)
    with ThreadPoolExecutor(4) as hands, ThreadPoolExecutor(10) as policies:
        publisher = _publisher(stage, hands)
        each = publisher._each

        def together(*args: Any) -> Any:
            if next(calls) < 10:
                all_began.wait(patience(10))
            return each(*args)

        publisher._each = together  # type: ignore[method-assign]  # all reports begin before one ends
        list(policies.map(publisher.publish, [reports[n : n + 10] for n in range(0, 100, 10)]))
    assert len(asked) == 4


def test_reports_that_an_api_server_takes_slowly_are_alive(beside: Stage) -> None:
    signs, silent = beside.world.vital_signs, list[Any]()
    write = beside.kubernetes.patch_status

    def slow(*args: Any, **named: Any) -> Any:
        silent.append(signs.failure_text())
        beside.now += 50
        return write(*args, **named)

    beside.kubernetes.patch_status = slow
    signs.beat("reports of streaming/orders")
    reports = _reports(beside, 20)
    _publisher(beside, None).publish(reports[:10])
    assert silent == [None] * 10
    with ThreadPoolExecutor(1) as hands:
        _publisher(beside, hands).publish(reports[10:])
    assert signs.failure_text() is None


def test_a_pass_that_waits_for_reports_is_alive_as_long_as_these_are(
    beside: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporter, "_LOOK_SECONDS", 0.01)
    beside.kubernetes.patch_status = slow = Slow(beside.kubernetes.patch_status)
    signs, waits = beside.world.vital_signs, threading.Event()
    contract(beside, "20M")
    beside.run()
    assert slow.entered.wait(patience(10))

    def wait() -> None:
        signs.beat("policy streaming/orders")
        waits.set()
        finish(beside)

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert waits.wait(patience(10))
    beside.now += 600
    wait_until(
        lambda: list(signs.silent_seconds()) == ["reports of streaming/orders"],
        "a sign of life of the pass",
        timeout_seconds=10,
    )
    slow.open()
    waiting.join(patience(10))


def test_a_deleted_policy_goes_after_its_last_report(beside: Stage) -> None:
    beside.kubernetes.patch_status = slow = Slow(beside.kubernetes.patch_status)
    contract(beside, "20M")
    beside.run()
    assert slow.entered.wait(patience(10))
    policy = next(iter(beside.kubernetes.list_all(BROKER_BANDWIDTH_POLICIES).items))
    beside.kubernetes.delete(ObjectRef.of(BROKER_BANDWIDTH_POLICIES, policy))
    threading.Timer(0.2, slow.open).start()
    beside.run()
    assert not beside.kubernetes.list_all(BROKER_BANDWIDTH_POLICIES).items
    assert beside.event_reasons()[-1] == Reason.GIVEN_BACK.value
    assert beside.produce() is None


# --- another writer that does not stop ------------------------------------------------------------


def contend(stage: Stage, *, rate: str = "5000000") -> tuple[ObjectRef, ObjectRef]:
    """Somebody has changed alice's quota three times."""
    policy, tier = stage.policy(), stage.tier()
    stage.run()
    for _ in range(3):
        stage.now += 31
        stage.store.put(ALICE, {PRODUCE: rate})
        stage.run()
    return policy, tier


def test_a_contended_quota_makes_policy_and_tier_unready_and_says_until_when(
    stage: Stage, golden: Callable[[str], None]
) -> None:
    policy, tier = contend(stage, rate="50000000")
    assert stage.condition(policy) == ("False", "Contended")
    assert stage.condition(policy, "Stalled")[0] == "False"
    assert stage.condition(tier) == ("False", "Contended")
    for ref in (policy, tier):
        for part in (
            "user=alice",
            "50000000",
            "10000000",
            "13:48:13",
            "13:49:13",
            "tidegate resync",
        ):
            assert part in stage.message(ref), (part, stage.message(ref))
    (member,) = stage.kubernetes.get(tier)["status"]["members"]
    assert (member["state"], member["contendedUntil"]) == ("Contended", "1970-01-12T13:49:13Z")
    warnings = [event for event in stage.kubernetes.events if event.reason == "Contended"]
    assert {event.type for event in warnings} == {"Warning"}
    assert all("13:49:13" in event.note for event in warnings)
    golden(stage.message(policy) + "\n" + stage.message(tier))


def test_the_next_time_it_is_left_alone_has_an_event_with_its_own_end(stage: Stage) -> None:
    _, tier = contend(stage)
    kubernetes = stage.kubernetes

    def of_tier() -> list[str]:
        return [
            event.note
            for event in kubernetes.events
            if event.reason == "Contended" and event.regarding.name == tier.name
        ]

    assert len(of_tier()) == 1
    stage.now += 30
    stage.run()
    assert len(of_tier()) == 1
    stage.now += 31
    stage.run()
    assert stage.condition(tier) == ("True", "Contract")
    (member,) = kubernetes.get(tier)["status"]["members"]
    assert "contendedUntil" not in member
    stage.store.put(ALICE, {PRODUCE: "5000000"})
    stage.now += 31
    stage.run()
    assert len(of_tier()) == 2
    assert "13:51:45" in of_tier()[-1]  # 120 s this time


def test_a_resync_is_done_once_and_has_an_event(
    stage: Stage, golden: Callable[[str], None]
) -> None:
    policy, tier = contend(stage)
    stage.kubernetes.edit(
        policy, lambda raw: raw["metadata"].update(annotations={"tidegate.io/resync": "1"})
    )
    stage.now += 1
    stage.run()
    assert stage.produce() == "10000000"
    assert stage.condition(policy)[0] == stage.condition(tier)[0] == "True"
    stage.run()
    (event,) = [event for event in stage.kubernetes.events if event.reason == "Resynced"]
    assert (event.type, event.regarding.name) == ("Normal", "orders")
    assert "user=alice" in event.note
    golden(event.note)


def test_who_is_left_alone_on_a_broker_over_its_limit_is_named_also_of_level_l0(
    stage: Stage, golden: Callable[[str], None]
) -> None:
    policy = stage.policy(metrics=METRICS, brokers=LIMITS)
    stage.tier()
    stage.run()
    stage.now += 30  # no reading comes
    stage.run()
    for _ in range(3):
        stage.now += 31
        stage.store.put(ALICE, {PRODUCE: "90000000"})
        stage.run()
    limited = {"ingress": {"limit": "10M"}}
    stage.kubernetes.edit(policy, lambda raw: raw["spec"].update(brokers=limited))
    spans = {
        (broker, way): tuple(
            NicSpan(stage.now - 1 - back * 15, 15, 3e7 if broker == 1 else 1e6)
            for back in (2, 1, 0)
        )
        for broker in (1, 2, 3)
        for way in Direction.COMBINED.parts
    }
    stage.readings = Readings(stage.now, 15.0, spans)
    stage.run()
    assert stage.condition(policy, "Throttling") == ("False", "QuotaCannotHelp")
    assert "user=alice (L0)" in stage.message(policy, "Throttling")
    golden(stage.message(policy, "Throttling"))
