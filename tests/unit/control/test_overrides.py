"""An override from the resource to the quota and back: it takes effect, is reported, ends by
itself, and is harmless when it is wrong.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from tests.goldens.golden import numbers
from tests.unit.control.stage import ALICE, Stage
from tidegate.errors import Unreachable
from tidegate.kube.api import BROKER_BANDWIDTH_POLICIES, BUSINESS_TIERS, QUOTA_OVERRIDES, ObjectRef
from tidegate.kube.cache import relist
from tidegate_logic.model import QuotaKey
from tidegate_logic.reasons import Reason

MADE = "2026-11-21T12:00:00Z"
ENDS = "2026-11-21T13:00:00Z"
TWENTY = {"rates": {"perPartition": {"produce": "20M"}}}
LATER_SECONDS = 3 * 3600.0  # when no list is fresh any more


def seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


@pytest.fixture
def stage() -> Stage:
    """A policy and a tier with a contract of 10 MB/s a partition for alice, each broker leading
    one.
    """
    stage = Stage(now=seconds("2026-11-21T12:00:10Z"))
    stage.policy()
    stage.tier()
    stage.run()
    assert stage.produce() == "10000000"
    return stage


def put(stage: Stage, name: str = "backfill", *, made: str = MADE, **spec: Any) -> ObjectRef:
    target = {part: spec.pop(part) for part in ("user", "clientId", "level") if part in spec} or {
        "user": "alice"
    }
    action = "SetRates" if "rates" in spec else "Exempt"
    fields = {
        "policyRef": {"name": "orders"},
        "target": target,
        "action": action,
        "expiresAt": ENDS,
        "reason": "agreed",
        **spec,
    }
    raw = stage.kubernetes.create(
        QUOTA_OVERRIDES, {"metadata": {"name": name, "namespace": "streaming"}, "spec": fields}
    )
    ref = ObjectRef.of(QUOTA_OVERRIDES, raw)
    stage.kubernetes.edit(ref, lambda obj: obj["metadata"].update(creationTimestamp=made))
    return ref


def status(stage: Stage, ref: ObjectRef) -> dict[str, Any]:
    found: dict[str, Any] = stage.kubernetes.get(ref)["status"]
    return found


def message(stage: Stage, ref: ObjectRef) -> str:
    return str(status(stage, ref)["conditions"][0]["message"])


def settled(stage: Stage) -> None:
    """Run passes until nothing is on its way any more."""
    for _ in range(40):
        stage.now += max(stage.run(), 1.0)
    stage.run()


def test_it_takes_effect_and_reports_for_whom_since_when_and_until_when(
    stage: Stage, golden: Callable[[str], None]
) -> None:
    ref = put(stage, **TWENTY)
    stage.run()
    assert stage.produce() == "20000000"
    assert stage.condition(ref) == ("True", "Overridden")
    found = status(stage, ref)
    del found["conditions"], found["observedGeneration"]
    assert found == {
        "state": "Active",
        "members": [{"tier": "streaming/gold", "member": "alice", "user": "alice"}],
        "since": "2026-11-21T12:00:10Z",
        "until": ENDS,
        "summary": {"target": "user=alice", "members": 1},
    }
    assert numbers(message(stage, ref)) >= {20.0}
    golden(message(stage, ref))


def test_the_tier_names_which_override_its_member_has(stage: Stage) -> None:
    put(stage, **TWENTY)
    stage.run()
    (tier,) = stage.kubernetes.list_all(BUSINESS_TIERS)
    assert tier["status"]["members"][0]["override"] == "streaming/backfill"
    stage.now = seconds(ENDS)
    settled(stage)
    (tier,) = stage.kubernetes.list_all(BUSINESS_TIERS)
    assert "override" not in tier["status"]["members"][0]


def test_a_second_pass_writes_and_reports_nothing(stage: Stage) -> None:
    ref = put(stage, **TWENTY)
    stage.run()
    version, count = (
        stage.kubernetes.get(ref)["metadata"]["resourceVersion"],
        len(stage.event_reasons()),
    )
    stage.now += 60
    stage.run()
    assert stage.kubernetes.get(ref)["metadata"]["resourceVersion"] == version
    assert len(stage.event_reasons()) == count


def test_it_ends_by_itself_and_the_contract_is_back(stage: Stage) -> None:
    ref = put(stage, **TWENTY)
    stage.run()
    stage.now = seconds(ENDS)
    stage.run()
    assert stage.condition(ref) == ("False", "OverrideExpired")
    assert status(stage, ref)["state"] == "Expired"
    assert status(stage, ref)["since"] == "2026-11-21T12:00:10Z"
    assert "members" not in status(stage, ref)
    settled(stage)
    assert stage.produce() == "10000000"
    assert stage.event_reasons().count("OverrideExpired") == 1


def test_beginning_and_end_have_one_event_each_and_no_warning(stage: Stage) -> None:
    put(stage, **TWENTY)
    stage.run()
    stage.now = seconds(ENDS)
    settled(stage)
    events = [
        (event.reason, event.type)
        for event in stage.kubernetes.events
        if event.regarding.kind == QUOTA_OVERRIDES
    ]
    assert events == [("Overridden", "Normal"), ("OverrideExpired", "Normal")]


@pytest.mark.parametrize(("before_end", "due"), [(0.25, 0.25), (1800.0, None)])
def test_the_next_pass_is_due_when_it_ends_if_that_is_soon(
    stage: Stage, *, before_end: float, due: float | None
) -> None:
    put(stage, **TWENTY)
    stage.run()
    usual = stage.run()
    stage.now = seconds(ENDS) - before_end
    assert stage.run() == pytest.approx(usual if due is None else due)


def test_an_edited_end_and_a_deletion_take_effect_at_the_next_pass(stage: Stage) -> None:
    ref = put(stage, **TWENTY)
    stage.run()
    stage.kubernetes.edit(
        ref, lambda raw: raw["spec"]["rates"]["perPartition"].update(produce="30M")
    )
    stage.run()
    assert stage.produce() == "30000000"
    stage.kubernetes.delete(ref)
    settled(stage)
    assert stage.produce() == "10000000"


def test_a_restarted_operator_keeps_since_when_it_is_in_force(stage: Stage) -> None:
    ref = put(stage, **TWENTY)
    stage.run()
    stage.now += 100
    stage.restart()
    stage.run()
    assert status(stage, ref)["since"] == "2026-11-21T12:00:10Z"
    assert stage.produce() == "20000000"


def test_one_without_a_member_changes_nothing_and_takes_effect_when_its_member_appears(
    stage: Stage,
) -> None:
    ref = put(stage, **{**TWENTY, "user": "bob"})
    stage.run()
    assert stage.condition(ref) == ("False", "NoSuchMember")
    assert status(stage, ref)["state"] == "Pending"
    stage.tier("silver", user="bob")
    stage.run()
    assert stage.condition(ref) == ("True", "Overridden")


def test_one_whose_policy_cannot_be_read_has_that_reason(stage: Stage) -> None:
    ref = put(stage, **TWENTY)
    stage.run()
    policy = ObjectRef.of(BROKER_BANDWIDTH_POLICIES, stage.world.policies()["streaming/orders"])
    stage.kubernetes.edit(policy, lambda raw: raw["spec"].update(mode="Perhaps"))
    stage.run()
    assert stage.condition(ref) == ("False", "InvalidSpec")
    assert status(stage, ref)["state"] == "Pending"


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        ({"user": "alice"}, "user=alice"),
        ({"user": "alice", "clientId": "etl"}, "user=alice, client-id=etl"),
        ({"level": "L2"}, "L2"),
        ({"level": "L2", "user": "alice"}, None),
    ],
)
def test_whom_it_is_for_is_shown_before_its_policy_exists(
    stage: Stage, target: dict[str, str], shown: str | None
) -> None:
    ref = put(stage, **{**TWENTY, "target": target})
    raw = stage.kubernetes.get(ref)
    stage.world.reporter.without_policy([(QUOTA_OVERRIDES, raw, "streaming/orders")])
    assert stage.condition(ref) == ("False", "PolicyNotFound")
    assert status(stage, ref).get("summary", {}).get("target") == shown


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (
            {"expiresAt": "2026-12-22T12:00:00Z"},
            ("2026-12-22T12:00:00Z", "30", "2026-11-21T12:00:00Z"),
        ),
        ({"action": "Exempt"}, ("rates", "Exempt")),
        ({"expiresAt": "soon"}, ("spec.expiresAt", "soon")),
    ],
)
def test_a_broken_one_changes_nothing_and_holds_no_other_up(
    stage: Stage, wrong: dict[str, Any], named: tuple[str, ...]
) -> None:
    broken, sound = (
        put(stage, **{**TWENTY, **wrong}),
        put(stage, "later", rates={"perPartition": {"produce": "15M"}}),
    )
    stage.run()
    assert stage.condition(broken) == ("False", "InvalidSpec")
    assert [name for name in named if name not in message(stage, broken)] == []
    assert (stage.condition(sound), stage.produce()) == (("True", "Overridden"), "15000000")


def test_30_days_after_the_object_was_made_to_the_second_is_allowed(stage: Stage) -> None:
    ref = put(stage, **{**TWENTY, "expiresAt": "2026-12-21T12:00:00Z"})
    stage.run()
    assert stage.condition(ref) == ("True", "Overridden")


def test_one_that_lasts_too_long_reads_like_this(
    stage: Stage, golden: Callable[[str], None]
) -> None:
    ref = put(stage, **{**TWENTY, "expiresAt": "2026-12-22T12:00:00Z"})
    stage.run()
    golden(message(stage, ref))


def test_the_one_that_loses_names_the_other_and_takes_over_when_that_ends(
    stage: Stage, golden: Callable[[str], None]
) -> None:
    level = put(
        stage,
        "level",
        level="L0",
        rates={"perPartition": {"produce": "15M"}},
        expiresAt="2026-11-25T00:00:00Z",
    )
    single = put(stage, "single", **TWENTY)
    stage.run()
    assert stage.produce() == "20000000"
    assert stage.condition(level) == ("False", "Overruled")
    assert "streaming/single" in message(stage, level)
    golden(message(stage, level))
    stage.now = seconds(ENDS)
    settled(stage)
    assert (stage.condition(single)[1], stage.condition(level), stage.produce()) == (
        "OverrideExpired",
        ("True", "Overridden"),
        "15000000",
    )


def test_a_level_of_which_one_member_has_an_override_of_its_own_is_ready_and_names_it(
    stage: Stage, golden: Callable[[str], None]
) -> None:
    stage.tier("silver", user="bob")
    level, _ = (
        put(stage, "level", level="L0", rates={"perPartition": {"produce": "15M"}}),
        put(stage, "single", **TWENTY),
    )
    stage.run()
    assert stage.condition(level) == ("True", "Overridden")
    for named in ("streaming/gold alice", "streaming/single"):
        assert named in message(stage, level)
    golden(message(stage, level))


def test_in_a_pause_it_is_not_known_to_be_in_force_and_its_end_waits(
    stage: Stage, golden: Callable[[str], None]
) -> None:
    ref = put(stage, **TWENTY)
    stage.run()
    policy = ObjectRef.of(BROKER_BANDWIDTH_POLICIES, stage.world.policies()["streaming/orders"])
    stage.kubernetes.edit(
        policy, lambda raw: raw["metadata"].update(annotations={"tidegate.io/paused": "true"})
    )
    stage.run()
    assert stage.condition(ref) == ("Unknown", "Paused")
    stage.now = seconds(ENDS) + 1
    stage.run()
    assert stage.produce() == "20000000"
    assert "tidegate.io/paused" in message(stage, ref)
    golden(message(stage, ref))


def test_a_level_that_fits_some_members_only_names_whom_it_does_not_fit(
    stage: Stage, golden: Callable[[str], None]
) -> None:
    member = {"name": "bob", "user": "bob", "contract": {"total": {"produce": "9M"}}}
    spec = {"policyRef": {"name": "orders"}, "level": "L0", "members": [member]}
    stage.kubernetes.create(
        BUSINESS_TIERS, {"metadata": {"name": "silver", "namespace": "streaming"}, "spec": spec}
    )
    ref = put(stage, level="L0", **TWENTY)
    stage.run()
    assert stage.produce() == "20000000"
    assert stage.condition(ref) == ("False", "OverrideUnfit")
    assert status(stage, ref)["summary"] == {"target": "L0", "members": 1}
    assert "streaming/silver bob" in message(stage, ref)
    assert numbers(message(stage, ref)) == {1, 2}
    golden(message(stage, ref))


def test_lowering_by_an_override_goes_in_safe_steps_that_are_reported(stage: Stage) -> None:
    stage.now += 60
    ref = put(stage, rates={"perPartition": {"produce": "1M"}})
    stage.run()
    assert stage.produce() not in ("10000000", "1000000")
    assert stage.condition(ref) == ("False", "Stepping")
    settled(stage)
    assert (stage.produce(), stage.condition(ref)) == ("1000000", ("True", "Overridden"))


def test_overrides_that_could_not_be_listed_hold_every_quota(
    stage: Stage, golden: Callable[[str], None]
) -> None:
    ref = put(stage, **TWENTY)
    stage.run()
    stage.now += LATER_SECONDS
    for kind in (BROKER_BANDWIDTH_POLICIES, BUSINESS_TIERS):
        relist(stage.cache, stage.kubernetes, kind)
    stage.run(relisted=False)
    policy = ObjectRef.of(BROKER_BANDWIDTH_POLICIES, stage.world.policies()["streaming/orders"])
    ready = stage.kubernetes.get(policy)["status"]["conditions"][0]
    assert ready["reason"] == "ListIncomplete"
    assert "QuotaOverrides" in ready["message"]
    assert (stage.produce(), status(stage, ref)["state"]) == ("20000000", "Active")
    assert stage.condition(ref) == ("Unknown", "ListIncomplete")
    golden(ready["message"])


def test_in_mode_observe_nothing_is_written_and_that_is_reported(stage: Stage) -> None:
    del stage
    watching = Stage(now=seconds("2026-11-21T12:00:10Z"))
    watching.policy(mode="Observe")
    watching.tier()
    ref = put(watching, **TWENTY)
    watching.run()
    assert watching.condition(ref) == ("True", "Observing")
    assert watching.store.read([ALICE])[ALICE].values.get(QuotaKey.PRODUCER_BYTE_RATE) is None


def test_an_outage_of_zookeeper_keeps_what_is_in_force(stage: Stage) -> None:
    ref = put(stage, **TWENTY)
    stage.run()
    stage.leaders.error = Unreachable(Reason.BROKERS_UNREACHABLE, "No broker answers.")
    stage.run()
    assert (stage.condition(ref), status(stage, ref)["state"]) == (
        ("Unknown", "BrokersUnreachable"),
        "Active",
    )
    assert stage.produce() == "20000000"


NIGHTS = {
    "expiresAt": None,
    "recurrence": {
        "days": ["Sat", "Sun"],
        "from": "22:00",
        "to": "06:00",
        "timeZone": "Europe/Berlin",
        "until": "2027-11-22T12:00:00Z",
    },
}


def put_nights(stage: Stage, **spec: Any) -> ObjectRef:
    """On Saturdays and Sundays from 21:00 to 05:00 UTC; it is Saturday noon."""
    ref = put(stage, **{**TWENTY, **NIGHTS, **spec})
    stage.kubernetes.edit(ref, lambda raw: raw["spec"].pop("expiresAt"))
    return ref


def test_before_its_start_the_contract_applies_and_the_status_says_when_it_begins(
    stage: Stage, golden: Callable[[str], None]
) -> None:
    ref = put(stage, **TWENTY, startsAt="2026-11-21T12:30:00Z")
    stage.run()
    assert (stage.produce(), stage.condition(ref)) == ("10000000", ("False", "OverrideScheduled"))
    found = status(stage, ref)
    assert (found["state"], found["startsAt"], found["until"]) == (
        "Scheduled",
        "2026-11-21T12:30:00Z",
        ENDS,
    )
    golden(message(stage, ref))
    stage.now = seconds("2026-11-21T12:29:59Z")
    stage.run()
    assert stage.run() == pytest.approx(1.0)
    stage.now += 1.0
    stage.run()
    assert (stage.produce(), stage.condition(ref)) == ("20000000", ("True", "Overridden"))
    found = status(stage, ref)
    assert (found["state"], found["since"]) == ("Active", "2026-11-21T12:30:00Z")
    assert "startsAt" not in found


def test_one_that_comes_back_begins_and_ends_each_time_until_it_is_over(stage: Stage) -> None:
    ref = put_nights(stage)
    stage.run()
    for begins, ends in (
        ("2026-11-21T21:00:00Z", "2026-11-22T05:00:00Z"),
        ("2026-11-22T21:00:00Z", "2026-11-23T05:00:00Z"),
        ("2026-11-28T21:00:00Z", "2026-11-29T05:00:00Z"),
        ("2027-03-27T21:00:00Z", "2027-03-28T04:00:00Z"),  # clocks are put forward that night
        ("2027-10-30T20:00:00Z", "2027-10-31T05:00:00Z"),  # and back
    ):
        stage.now = seconds(begins) - 1
        stage.run()
        found = status(stage, ref)
        assert (found["state"], found["startsAt"], found["until"]) == ("Scheduled", begins, ends)
        assert stage.produce() == "10000000"
        stage.now = seconds(begins)
        stage.run()
        found = status(stage, ref)
        assert (found["state"], found["since"], found["until"]) == ("Active", begins, ends)
        assert stage.produce() == "20000000"
        stage.now = seconds(ends) - 1
        stage.run()
        assert stage.produce() == "20000000"
        stage.now = seconds(ends)
        settled(stage)
        assert (stage.produce(), stage.condition(ref)) == (
            "10000000",
            ("False", "OverrideScheduled"),
        )
    stage.now = seconds("2027-11-22T12:00:00Z")
    stage.run()
    assert stage.condition(ref) == ("False", "OverrideExpired")
    assert "startsAt" not in status(stage, ref)


def test_beginnings_and_ends_of_one_that_comes_back_are_normal_events(stage: Stage) -> None:
    put_nights(stage)
    stage.run()
    for at in ("2026-11-21T21:00:00Z", "2026-11-22T05:00:00Z"):
        stage.now = seconds(at)
        settled(stage)
    events = [
        (event.reason, event.type)
        for event in stage.kubernetes.events
        if event.regarding.kind == QUOTA_OVERRIDES
    ]
    assert events == [
        ("OverrideScheduled", "Normal"),
        ("Overridden", "Normal"),
        ("OverrideScheduled", "Normal"),
    ]


def test_a_pause_over_its_beginning_and_its_end_keeps_the_quota_and_ends_in_what_is_due(
    stage: Stage,
) -> None:
    ref = put_nights(stage)
    stage.run()
    policy = ObjectRef.of(BROKER_BANDWIDTH_POLICIES, stage.world.policies()["streaming/orders"])

    def pause(text: str) -> None:
        stage.kubernetes.edit(
            policy, lambda raw: raw["metadata"].update(annotations={"tidegate.io/paused": text})
        )

    pause("true")
    stage.now = seconds("2026-11-21T21:00:00Z")
    stage.run()
    assert (stage.produce(), stage.condition(ref)) == ("10000000", ("Unknown", "Paused"))
    pause("false")
    stage.run()
    assert (stage.produce(), stage.condition(ref)) == ("20000000", ("True", "Overridden"))
    pause("true")
    stage.now = seconds("2026-11-22T05:00:00Z")
    stage.run()
    assert (stage.produce(), stage.condition(ref)) == ("20000000", ("False", "OverrideScheduled"))
    assert "tidegate.io/paused" in message(stage, ref)
    pause("false")
    settled(stage)
    assert stage.produce() == "10000000"


def test_an_operator_that_was_down_at_a_beginning_or_an_end_does_what_is_due_then(
    stage: Stage,
) -> None:
    ref = put_nights(stage)
    stage.run()
    stage.now = seconds("2026-11-21T23:00:00Z")
    stage.restart()
    stage.run()
    assert (stage.produce(), status(stage, ref)["state"]) == ("20000000", "Active")
    stage.now = seconds("2026-11-22T12:00:00Z")
    stage.restart()
    settled(stage)
    assert (stage.produce(), status(stage, ref)["state"]) == ("10000000", "Scheduled")


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (
            {"recurrence": {**NIGHTS["recurrence"], "until": "2027-11-22T12:00:01Z"}},  # type: ignore[dict-item]
            ("recurrence.until", "366", "2026-11-21T12:00:00Z"),
        ),
        (
            {"recurrence": {**NIGHTS["recurrence"], "timeZone": "Europe/Nowhere"}},  # type: ignore[dict-item]
            ("spec.recurrence.timeZone",),
        ),
        ({"startsAt": "2027-11-22T12:00:00Z"}, ("startsAt",)),
    ],
)
def test_a_broken_recurrence_changes_nothing(
    stage: Stage, wrong: dict[str, Any], named: tuple[str, ...]
) -> None:
    ref = put_nights(stage, **wrong)
    stage.now = seconds("2026-11-21T23:00:00Z")
    stage.run()
    assert (stage.produce(), stage.condition(ref)) == ("10000000", ("False", "InvalidSpec"))
    assert [name for name in named if name not in message(stage, ref)] == []
