"""`tidegate plan` from end to end, on the in-memory twin: what it shows, what it exits with, and
that it writes nothing at all.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import yaml

from tests.goldens.golden import line_with, numbers
from tests.unit.commands.conftest import World
from tidegate.commands.output import ExitCode, Page
from tidegate.commands.plan import (
    entity_document,
    plan_document,
    plan_exit_code,
    plan_rows,
    show_plan,
    summary_line,
)
from tidegate.errors import Unauthorized, Unreachable
from tidegate.kafka.quota_store import Claim
from tidegate.kube.api import BROKER_BANDWIDTH_POLICIES, BUSINESS_TIERS, JsonObject
from tidegate.kube.rollup_jobs import record_result
from tidegate_logic.contracts.desired import MemberReport, MemberState
from tidegate_logic.contracts.leader_scaling import Leaders
from tidegate_logic.contracts.targets import QuotaScalings
from tidegate_logic.decision import Decision
from tidegate_logic.model import (
    Contract,
    Default,
    DirectionUsage,
    Entity,
    Hold,
    LedgerEntry,
    LedgerRecord,
    Level,
    Member,
    Mode,
    Note,
    Observation,
    Policy,
    QuotaKey,
    QuotaWrite,
    RateForm,
    ScalingMethod,
    StoredQuota,
    Tier,
    TopicLeaders,
    Topology,
    Usage,
    WriteKind,
)
from tidegate_logic.reasons import Reason

ALICE = Entity(user="alice")
FETCH = QuotaKey.CONSUMER_BYTE_RATE


def test_a_first_quota_is_planned_and_not_one_znode_changes(
    world: Any, policy: Any, tier: Any
) -> None:
    before = world.snapshot()
    answer = world.plan(policy, tier)
    assert answer.code == 2, answer.err
    assert "user=alice" in answer.out
    assert "10 MB/s" in answer.out
    assert world.snapshot() == before


def test_nothing_to_do_exits_with_zero(
    world: Any, policy: Any, tier: Any, golden: Callable[[str], None]
) -> None:
    tier["spec"]["members"][0].pop("contract")
    answer = world.plan(policy, tier)
    assert (answer.code, answer.err) == (0, "")
    assert "user=alice" not in answer.out
    golden(answer.out.splitlines()[-1])


def test_unmeasured_reads_from_followers_are_noted_and_change_no_quota(
    world: Any, policy: Any, tier: Any
) -> None:
    policy["spec"].pop("metrics", None)
    files = world.write_files(policy, tier)
    before = json.loads(world.run("plan", "-f", files, "-o", "json").out)
    world.read_from_followers()
    after = json.loads(world.run("plan", "-f", files, "-o", "json").out)
    (note,) = after["warnings"]
    assert "spec.metrics" in note
    assert after["changes"] == before["changes"]
    assert {one["fetchBy"] for one in after["members"] if one["fetchBy"]} == {"Leaders"}


def test_declared_racks_scale_fetch_and_both_skews_are_shown(
    world: Any, policy: Any, tier: Any
) -> None:
    world.read_from_followers()
    (shop,) = [one for one in tier["spec"]["members"] if one["name"] == "shop"]
    shop["racks"] = ["a"]
    tier["spec"]["members"] = [shop]
    policy["spec"].pop("metrics", None)
    files = world.write_files(policy, tier)
    plan = json.loads(world.run("plan", "-f", files, "-o", "json").out)
    (member,) = plan["members"]
    assert plan["warnings"] == []
    assert (member["leaderSkew"], member["fetchSkew"]) == (1.0, 1.0)
    assert (member["fetchBy"], member["fetchBrokers"]) == ("Racks", [1])
    assert member["target"]["consumer_byte_rate"] == member["promisedTotal"]["consumer_byte_rate"]
    row = next(line for line in world.plan(policy, tier).out.splitlines() if " fetch " in line)
    assert "1.00 by racks" in row


def test_cordoned_brokers_are_noted_and_change_nothing_of_the_plan(
    world: Any, policy: Any, tier: Any, golden: Callable[[str], None]
) -> None:
    files = world.write_files(policy, tier)
    before = json.loads(world.run("plan", "-f", files, "-o", "json").out)
    world.cordon()
    after = json.loads(world.run("plan", "-f", files, "-o", "json").out)
    (note,) = after.pop("warnings")
    assert numbers(note) == {1, 2, 3}
    golden(note)
    assert before == {**after, "warnings": []}
    assert "cordoned.log.dirs" in world.run("explain", "--user", "alice", "-f", files).out


def test_moved_leaders_show_skew_and_both_totals(world: Any, policy: Any, tier: Any) -> None:
    world.leaders = {"acc": {1: 2, 2: 1}}
    row = next(
        line for line in world.plan(policy, tier).out.splitlines() if line.startswith("user=alice")
    )
    assert row.split() == [
        *(
            "user=alice",
            "fetch",
            "unlimited",
            "20",
            "MB/s",
            "20",
            "MB/s",
            "FirstQuota",
            "3",
            "1.33",
        ),
        *("30", "MB/s", "40", "MB/s", "-", "streaming/core", "/", "shop"),
    ]


def test_overrides_that_are_in_force_and_those_that_change_nothing_are_worth_knowing(
    world: Any, policy: Any, tier: Any, golden: Callable[[str], None]
) -> None:
    spec = {
        "policyRef": {"name": "orders"},
        "target": {"user": "alice"},
        "action": "SetRates",
        "expiresAt": "2026-11-30T06:00:00Z",
        "reason": "agreed",
    }
    head = {"apiVersion": "tidegate.io/v1alpha1", "kind": "QuotaOverride"}
    rates = {"total": {"produce": "9M"}}
    overrides = [
        {
            **head,
            "metadata": {"name": "more"},
            "spec": {**spec, "rates": {"perPartition": {"fetch": "30M"}}},
        },
        {**head, "metadata": {"name": "unfit"}, "spec": {**spec, "rates": rates}},
    ]
    answer = world.plan(
        policy,
        tier,
        *[{**one, "metadata": {**one["metadata"], "namespace": "streaming"}} for one in overrides],
    )
    in_force, unfit = (
        line_with(answer.out, "streaming/more", "agreed"),
        line_with(answer.out, "streaming/unfit"),
    )
    for name in ("user=alice", "2026-11-30T06:00:00Z", "agreed"):
        assert name in in_force
    assert "streaming/core shop" in unfit
    golden(f"{in_force}\n{unfit}")


@pytest.mark.parametrize(("output", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_the_document_has_the_same_plan(
    world: Any, policy: Any, tier: Any, output: str, read: Any
) -> None:
    answer = world.plan(policy, tier, options=("--output", output))
    document = read(answer.out)
    assert answer.code == 2
    assert [change["next"] for change in document["changes"]] == ["10000000"]
    assert document["summary"]["entitiesToWrite"] == 1


@pytest.mark.parametrize("by", ["annotation", "suspend"])
def test_a_paused_policy_shows_what_ends_with_the_pause(
    world: Any, policy: Any, tier: Any, by: str
) -> None:
    if by == "annotation":
        policy["metadata"]["annotations"] = {"tidegate.io/paused": "true"}
    else:
        policy["spec"]["suspend"] = True
    answer = world.plan(policy, tier)
    assert answer.code == 2
    assert (
        "paused by "
        f"{'the annotation tidegate.io/paused' if by == 'annotation' else 'spec.suspend'}."
        in answer.out
    )
    assert "user=alice" in answer.out


def test_in_observe_mode_the_plan_is_the_same(
    world: Any, policy: Any, tier: Any, golden: Callable[[str], None]
) -> None:
    policy["spec"]["mode"] = "Observe"
    answer = world.plan(policy, tier)
    assert answer.code == 2
    observed = json.loads(world.plan(policy, tier, options=("-o", "json")).out)["changes"]
    policy["spec"]["mode"] = "Enforce"
    assert observed == json.loads(world.plan(policy, tier, options=("-o", "json")).out)["changes"]
    golden(answer.out.splitlines()[1])


def test_a_lowering_goes_in_steps_and_says_what_it_costs(
    world: Any, policy: Any, tier: Any, golden: Callable[[str], None]
) -> None:
    world.store.put(ALICE, {FETCH: "80000000"})
    answer = world.plan(policy, tier)
    row = next(line for line in answer.out.splitlines() if line.startswith("user=alice"))
    assert numbers(row) >= {40.0, 12}
    golden(answer.out)


def test_a_mute_is_shown_beside_the_rate_that_falls_and_not_beside_the_one_that_rises(
    world: Any, policy: Any, tier: Any
) -> None:
    tier["spec"]["members"][0]["contract"]["perPartition"]["produce"] = "10M"
    world.store.put(ALICE, {FETCH: "80000000", QuotaKey.PRODUCER_BYTE_RATE: "5000000"})
    fetch, produce = (
        line for line in world.plan(policy, tier).out.splitlines() if line.startswith("user=alice")
    )
    assert 12 in numbers(fetch)
    assert 12 not in numbers(produce)


def test_an_unreachable_zookeeper_is_a_hold_and_an_error(
    world: Any, policy: Any, tier: Any
) -> None:
    away = Unreachable(
        Reason.ZOOKEEPER_UNREACHABLE, "ZooKeeper zk-1:2181 did not answer within 10 s."
    )
    world.store.fail_next(away)
    answer = world.plan(policy, tier)
    assert answer.code == 1
    assert away.reason.value in line_with(answer.out, "warning: ", away.message)


def test_the_cluster_of_another_policy_is_not_planned_for(
    world: Any, policy: Any, tier: Any, golden: Callable[[str], None]
) -> None:
    world.store.claim(Claim("other/policy", "uid"))
    answer = world.plan(policy, tier)
    assert answer.code == 1
    warning = line_with(answer.out, "warning: ", "other/policy")
    golden(warning)


def test_a_misspelt_field_is_an_error_that_names_it(world: Any, policy: Any, tier: Any) -> None:
    tier["spec"]["members"][0]["topic"] = ["acc"]
    answer = world.plan(policy, tier)
    assert answer.code == 1
    assert "BusinessTier streaming/core" in answer.err
    assert "Traceback" not in answer.err


def test_from_the_cluster_the_same_objects_give_the_same_changes(
    world: Any, policy: Any, tier: Any
) -> None:
    from_files = json.loads(world.plan(policy, tier, options=("-o", "json")).out)
    world.kubernetes.create(BROKER_BANDWIDTH_POLICIES, policy)
    world.kubernetes.create(BUSINESS_TIERS, tier)
    from_cluster = json.loads(world.run("plan", "--namespace", "streaming", "-o", "json").out)
    assert from_cluster["changes"] == from_files["changes"]


def test_a_tier_in_the_cluster_that_does_not_read_is_named_and_held(
    world: Any, policy: Any, tier: Any
) -> None:
    tier["spec"]["level"] = "L9"
    world.kubernetes.create(BROKER_BANDWIDTH_POLICIES, policy)
    world.kubernetes.create(BUSINESS_TIERS, tier)
    answer = world.run("plan")
    assert answer.code == 0
    assert "BusinessTier streaming/core" in line_with(answer.out, "warning: ", "L9")


def test_one_of_several_policies_must_be_named(world: Any, policy: Any, tier: Any) -> None:
    other = {**policy, "metadata": {**policy["metadata"], "name": "clicks"}}
    path = world.write_files(policy, other, tier)
    assert world.run("plan", "-f", path).code == 1
    assert world.run("plan", "-f", path, "--policy", "orders").code == 2
    assert world.run("plan", "-f", path, "--policy", "streaming/orders").code == 2


def test_a_secret_cannot_be_read_from_files_alone(world: Any, policy: Any, tier: Any) -> None:
    policy["spec"]["kafka"]["zookeeper"]["authentication"] = {
        "type": "digest",
        "username": "super",
        "passwordSecret": {"secretName": "zk", "password": "password"},
    }
    refused = world.plan(policy, tier)
    assert refused.code == 1
    assert "Secret streaming/zk" in refused.err
    assert "--credentials-file" in refused.err
    credentials = world.folder / "credentials"
    credentials.write_text("password: hush\n")
    assert world.plan(policy, tier, options=("--credentials-file", str(credentials))).code == 2


def test_another_address_on_the_command_line_keeps_the_policys_login(
    world: Any, policy: Any, tier: Any
) -> None:
    policy["spec"]["kafka"]["zookeeper"]["authentication"] = {
        "type": "digest",
        "username": "super",
        "passwordSecret": {"secretName": "zk", "password": "password"},
    }
    refused = world.plan(policy, tier, options=("--zookeeper", "zk-2:2181"))
    assert refused.code == 1
    assert "Secret streaming/zk" in refused.err


def test_a_wrong_address_on_the_command_line_is_named(world: Any, policy: Any, tier: Any) -> None:
    answer = world.plan(policy, tier, options=("--zookeeper", "no spaces please:1"))
    assert answer.code == 1
    assert "no spaces please:1" in answer.err


# --- the page of a decision -----------------------------------------------------------------------
# What a plan shows, checked on decisions made by hand: every number comes from the decision, and
# holds are said plainly.


PRODUCE = QuotaKey.PRODUCER_BYTE_RATE
STORED = StoredQuota(ALICE, {FETCH: "10000000", PRODUCE: "5000000"}, version=3)
POLICY = Policy(key="streaming/orders", uid="u1")
OBSERVATION = Observation(
    1000.0, POLICY, (), Topology(1000.0, frozenset({1, 2}), {}), {ALICE: STORED}
)
ORDERS = Member(
    "orders", ALICE, ("orders",), Contract(RateForm.PER_PARTITION, 10_000_000, 2_500_000)
)
TWO_LEADERS_AND_ONE = Topology(1000.0, frozenset({1, 2}), {"orders": TopicLeaders({1: 2, 2: 1})})
REPORT = MemberReport(
    Tier("streaming/core", Level.L1, (ORDERS,)),
    ORDERS,
    QuotaScalings(Leaders(TWO_LEADERS_AND_ONE), ScalingMethod.MAX).under(ORDERS),
    MemberState.CONTRACT,
    Reason.CONTRACT,
)
RAISE = QuotaWrite(
    entity=ALICE,
    values={FETCH: "20000000"},
    seen=STORED,
    ledger=LedgerRecord(
        ALICE,
        POLICY.key,
        POLICY.uid,
        {FETCH: LedgerEntry(None, "20000000", "10000000", 1000.0, Reason.LEADERS_MOVED)},
    ),
    kind=WriteKind.RECOVERY,
    reason=Reason.LEADERS_MOVED,
    wording="2 of 3 partitions are led by broker 1",
    charged=False,
)
DECISION = Decision(writes=(RAISE,), members=(REPORT,), managed=1)


def shown(
    decision: Decision, observation: Observation = OBSERVATION, *, show_unchanged: bool = False
) -> str:
    stream = io.StringIO()
    show_plan(Page(stream), observation, decision, show_unchanged=show_unchanged)
    return stream.getvalue()


def test_a_row_shows_before_after_both_totals_and_the_skew() -> None:
    row = next(line for line in shown(DECISION).splitlines() if line.startswith("user=alice"))
    for words in (
        "fetch",
        "10 MB/s",
        "20 MB/s",
        "LeadersMoved",
        "1.33",
        "30 MB/s",
        "40 MB/s",
        "streaming/core / orders",
    ):
        assert words in row


def test_keys_that_stay_are_shown_only_when_asked_for() -> None:
    assert "produce" not in shown(DECISION)
    assert "produce" in shown(DECISION, show_unchanged=True)


def test_in_observe_mode_the_plan_is_what_enforce_would_write() -> None:
    observing = replace(OBSERVATION, policy=replace(POLICY, mode=Mode.OBSERVE))
    text = shown(Decision(would_write=(RAISE,), members=(REPORT,), managed=1), observing)
    assert 20.0 in numbers(text)
    assert "Enforce" in text


def test_a_given_back_quota_shows_that_it_is_no_longer_managed(
    golden: Callable[[str], None],
) -> None:
    give_back = replace(
        RAISE, values={FETCH: None}, kind=WriteKind.GIVE_BACK, reason=Reason.GIVEN_BACK, ledger=None
    )
    row = next(
        line
        for line in shown(Decision(writes=(give_back,))).splitlines()
        if line.startswith("user=alice")
    )
    golden(row)


def test_a_hold_is_said_before_anything_else_is_promised(golden: Callable[[str], None]) -> None:
    hold = Hold(
        Reason.BROKERS_UNREACHABLE,
        "no broker of 10.0.0.1:9092 answered; every quota stays as it is",
        990.0,
    )
    text = shown(Decision(holds=(hold,)))
    lines = text.splitlines()
    assert lines.index(line_with(text, hold.reason.value, hold.message)) == 1  # after the heading
    golden(lines[1])


def test_a_member_that_is_left_alone_is_named_with_its_message() -> None:
    overlap = replace(
        REPORT,
        member=replace(ORDERS, name="twin"),
        scaling=None,
        state=MemberState.OVERLAPPING,
        wording="user=alice is in streaming/core already",
    )
    text = shown(Decision(writes=(RAISE,), members=(REPORT, overlap), managed=1))
    for name in ("streaming/core", "twin", "Overlapping"):
        assert name in line_with(text, str(overlap.wording))
    assert text.count("user=alice ") == 2  # its one row, and the sentence


def test_notes_are_part_of_the_plan() -> None:
    note = Note(Reason.REMOVAL_HELD, "9 of 10 quotas would be restored")
    assert note.reason.value in line_with(shown(Decision(notes=(note,))), note.message)


STEPPING = replace(REPORT, state=MemberState.STEPPING, in_force={FETCH: 30_000_000})
PAUSED = Hold(Reason.PAUSED, "paused", 0.0)


@pytest.mark.parametrize(
    ("decision", "code"),
    [
        (Decision(members=(REPORT,)), ExitCode.OK),
        (DECISION, ExitCode.WOULD_CHANGE),
        (Decision(would_write=(RAISE,)), ExitCode.WOULD_CHANGE),
        (Decision(deferred_writes=1), ExitCode.WOULD_CHANGE),
        (Decision(members=(STEPPING,)), ExitCode.WOULD_CHANGE),
        (Decision(holds=(PAUSED,)), ExitCode.ERROR),
        (Decision(holds=(PAUSED,), writes=(RAISE,)), ExitCode.WOULD_CHANGE),
    ],
    ids=[
        "in sync",
        "a write",
        "an observed write",
        "a deferred write",
        "a step to come",
        "held",
        "held in part",
    ],
)
def test_exit_code(decision: Decision, code: ExitCode) -> None:
    assert plan_exit_code(decision) is code


def test_the_document_carries_exact_texts_and_integers_and_is_plain_data() -> None:
    document = plan_document(OBSERVATION, DECISION)
    assert json.loads(json.dumps(document)) == document
    (change,) = document["changes"]  # type: ignore[misc]
    assert change == {
        "entity": {"user": "alice"},
        "key": "consumer_byte_rate",
        "inForce": "10000000",
        "next": "20000000",
        "target": 20_000_000,
        "kind": "Recovery",
        "reason": "LeadersMoved",
        "message": RAISE.message,
        "predictedMuteSeconds": 0.0,
        "charged": False,
        "tier": "streaming/core",
        "member": "orders",
    }


@pytest.mark.parametrize(
    ("entity", "document"),
    [
        (ALICE, {"user": "alice"}),
        (
            Entity(Default.DEFAULT, "c"),
            {"user": "<default>", "clientId": "c", "defaults": ["user"]},
        ),
        (Entity("<default>", None), {"user": "<default>"}),
    ],
    ids=str,
)
def test_a_default_entity_is_distinguished_from_a_user_of_that_name(
    entity: Entity, document: object
) -> None:
    assert entity_document(entity) == document


def test_the_summary_counts_each_kind_of_write(golden: Callable[[str], None]) -> None:
    first = replace(RAISE, entity=Entity(user="bob"), kind=WriteKind.FIRST)
    line = summary_line(
        Decision(
            writes=(RAISE, first),
            managed=5,
            in_sync=3,
            deferred_writes=2,
            next_pass_in_seconds=29.6,
        )
    )
    assert numbers(line) == {2, 5, 1, 3, 30}
    golden(line)


def test_rows_are_ordered_by_entity_and_then_fetch_before_produce() -> None:
    bob = replace(
        RAISE, entity=Entity(user="bob", client_id="b"), values={PRODUCE: "1", FETCH: "2"}
    )
    rows = plan_rows(OBSERVATION, Decision(writes=(bob, RAISE)))
    assert [(str(row.entity), row.key) for row in rows] == [
        ("user=alice", FETCH),
        ("user=bob, client-id=b", FETCH),
        ("user=bob, client-id=b", PRODUCE),
    ]


# --- recommended contracts ------------------------------------------------------------------------
# `tidegate plan` shows recommended contracts as the operator would take them, and says where it
# cannot know them.


MONTH_MS = 30 * 86_400_000


@pytest.fixture
def made(world: World, policy: dict[str, Any], tier: dict[str, Any]) -> JsonObject:
    """A cluster in which alice moves twice what she is promised, and a policy that allows a
    tenth.
    """
    policy["spec"]["metrics"] = {"prometheus": {"url": "http://prometheus:9090"}}
    policy["spec"]["rollup"] = {
        "storage": {"url": "s3://usage"},
        "recommend": {"headroomPercent": 0, "apply": "WithinPercent", "maxChangePercent": 10},
    }
    world.kubernetes.create(BUSINESS_TIERS, tier)
    return world.kubernetes.create(BROKER_BANDWIDTH_POLICIES, policy)


def record(world: World, policy: JsonObject, *, valid_ms: int = MONTH_MS) -> None:
    usage = Usage(
        7,
        world.now,
        {(Entity("alice"), QuotaKey.CONSUMER_BYTE_RATE): DirectionUsage(60e6, 20e6, 3, 1.0, 0.0)},
    )
    now_ms = round(world.now * 1000)
    record_result(
        world.kubernetes,
        policy,
        published=(),
        usage=usage,
        now_ms=now_ms,
        valid_until_ms=now_ms + valid_ms,
    )


def test_a_plan_shows_what_is_recommended_and_plans_with_what_is_applied(
    world: World, made: JsonObject
) -> None:
    record(world, made)
    document = json.loads(world.run("plan", "--output", "json").out)
    (said,) = document["recommendations"]
    assert (said["declared"], said["recommended"], said["applied"]) == (
        10_000_000,
        20_000_000,
        11_000_000,
    )
    assert document["changes"][0]["target"] == 11_000_000
    page = world.run("plan").out
    assert "streaming/core / shop" in line_with(page, "RecommendationApplied")


def test_figures_that_count_no_more_change_nothing(world: World, made: JsonObject) -> None:
    record(world, made, valid_ms=-1)
    document = json.loads(world.run("plan", "--output", "json").out)
    assert (document["recommendations"], document["changes"][0]["target"]) == ([], 10_000_000)


def test_a_result_that_may_not_be_read_is_named_in_a_warning(
    world: World, made: JsonObject, golden: Callable[[str], None]
) -> None:
    refused = Unauthorized("Kubernetes refused it (403)", Reason.NOT_AUTHORIZED)

    def refuse(*_: object) -> None:
        raise refused

    world.kubernetes.read_config_map = refuse  # type: ignore[method-assign, assignment]
    (warning,) = json.loads(world.run("plan", "--output", "json").out)["warnings"]
    assert refused.message in warning
    golden(warning)


def test_objects_of_a_cluster_with_fields_that_went_are_refused_by_name(world: Any) -> None:
    """The check before an upgrade: `kubectl get bbp,bt -A -o yaml | tidegate plan -f -`."""
    spec = {
        "mode": "Observe",
        "kafka": {"bootstrapServers": "k:9092"},
        "deletion": "Keep",
        "removal": {"maxPercentPerPass": 10},
    }
    policy = {
        "apiVersion": "tidegate.io/v1alpha1",
        "kind": "BrokerBandwidthPolicy",
        "metadata": {"name": "p", "namespace": "a", "uid": "x", "resourceVersion": "3"},
        "spec": spec,
        "status": {"observedGeneration": 1},
    }
    listed = {"apiVersion": "v1", "kind": "List", "items": [policy]}
    answer = world.run("plan", "-f", "-", standard_input=json.dumps(listed))
    assert answer.code == 1
    assert "spec.deletion" in answer.err
    assert "spec.removal.maxPercentPerPass" in answer.err


NIGHTLY = {
    "apiVersion": "tidegate.io/v1alpha1",
    "kind": "QuotaOverride",
    "metadata": {"name": "nightly", "namespace": "streaming"},
    "spec": {
        "policyRef": {"name": "orders"},
        "target": {"user": "alice"},
        "action": "SetRates",
        "rates": {"perPartition": {"fetch": "40M"}},
        "recurrence": {
            "from": "22:00",
            "to": "06:00",
            "timeZone": "Europe/Berlin",
            "until": "2027-03-31T22:00:00Z",
        },
        "reason": "agreed",
    },
}


@pytest.fixture
def by_the_clock(world: Any, policy: Any, tier: Any) -> Callable[..., Any]:
    """A plan of a policy with a calendar, a schedule and an override, of 2026-11-23 07:10 UTC."""
    world.now = 1_795_417_805.25
    policy["spec"]["metrics"] = {"prometheus": {"url": "http://prometheus:9090"}}
    night = {"from": "21:00", "to": "05:00"}
    policy["spec"]["brokers"] = {
        "egress": {"limit": "100M"},
        "schedules": [{**night, "egress": {"limit": "40M"}}],
    }
    policy["spec"]["escalation"] = {
        "calendar": {"entries": [{**night, "days": ["Mon"], "levels": {"L3": "20%"}}]}
    }
    return lambda *options: world.plan(policy, tier, NIGHTLY, options=options)


def test_a_plan_at_a_time_has_the_overrides_calendar_and_limits_of_then(
    world: Any, by_the_clock: Callable[..., Any], golden: Callable[[str], None]
) -> None:
    before = world.snapshot()
    now = json.loads(by_the_clock("-o", "json").out)
    night = json.loads(by_the_clock("-o", "json", "--at", "2026-11-24T00:00:00+01:00").out)
    assert "at" not in now
    assert night["at"] == {
        "time": "2026-11-23T23:00:00Z",
        "overrides": [
            {
                "name": "streaming/nightly",
                "target": "user=alice",
                "until": "2026-11-24T05:00:00Z",
            }
        ],
        "calendar": {"L3": 20},
        "limits": {"schedule": 0, "egress": 40_000_000, "until": "2026-11-24T05:00:00Z"},
    }
    fetch = {
        one["entity"].get("user"): one["next"]
        for one in night["changes"]
        if one["key"] == FETCH.value
    }
    usual = {
        one["entity"].get("user"): one["next"]
        for one in now["changes"]
        if one["key"] == FETCH.value
    }
    assert int(fetch["alice"]) == 4 * int(usual["alice"])
    others = {**fetch, "alice": None}
    assert others == {**usual, "alice": None}
    day = json.loads(by_the_clock("-o", "json", "--at", "2026-11-24T12:00:00Z").out)
    assert (day["at"]["overrides"], day["at"]["calendar"]) == ([], {"L3": None})
    assert day["at"]["limits"]["egress"] == 100_000_000
    assert day["changes"] == now["changes"]
    assert world.snapshot() == before
    shown = by_the_clock("--at", "2026-11-24T00:00:00+01:00").out
    golden(shown[shown.index("In force at") : shown.index("Policy ")])


@pytest.mark.parametrize(
    ("at", "overrides"),
    [
        ("2027-03-28T00:30:00Z", 1),  # that night, clocks in Berlin skip an hour
        ("2027-03-28T03:59:59Z", 1),
        ("2027-03-28T04:00:00Z", 0),
        ("2026-11-30T23:30:00Z", 1),  # across a month's end
        ("2027-03-31T22:00:00Z", 0),  # over for good
    ],
)
def test_a_plan_at_a_time_knows_clock_changes_and_ends(
    by_the_clock: Callable[..., Any], at: str, overrides: int
) -> None:
    plan = json.loads(by_the_clock("-o", "json", "--at", at).out)
    assert len(plan["at"]["overrides"]) == overrides


@pytest.mark.parametrize("at", ["2h", "2026-11-23T07:00:00Z", "tonight"])
def test_a_plan_at_a_time_that_is_over_or_is_none_is_refused(
    by_the_clock: Callable[..., Any], at: str
) -> None:
    answer = by_the_clock("--at", at)
    assert (answer.code, at in answer.err) == (1, True)
