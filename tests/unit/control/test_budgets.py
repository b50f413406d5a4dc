"""A BandwidthBudget from the resource to the quotas and back: it is divided, reported, and harmless
when it is wrong, unknown or not served.
"""

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.control.stage import Stage
from tidegate.control.runtime import OptionalKind
from tidegate.errors import NotFound, Unauthorized, Unreachable
from tidegate.kube.api import (
    BANDWIDTH_BUDGETS,
    BROKER_BANDWIDTH_POLICIES,
    BUSINESS_TIERS,
    ObjectRef,
)
from tidegate_logic.model import ClientRate, Direction, Entity, Readings
from tidegate_logic.reasons import Reason

IN = Direction.INGRESS
MEMBERS = {"selector": {"matchLabels": {"team": "search"}}}
METRICS = {"prometheus": {"url": "http://prometheus:9090"}}
ALICE, BOB = Entity("alice"), Entity("bob")
REFUSED = Unauthorized("Kubernetes refused it (403): cannot list bandwidthbudgets.")
NOT_SERVED = NotFound(Reason.LIST_INCOMPLETE, "Kubernetes does not serve bandwidthbudgets.")


@pytest.fixture
def stage() -> Stage:
    """Two members of team search with a contract of 10 MB/s a partition, one on each of 3 brokers;
    the operator serves budgets.
    """
    stage = Stage()
    stage.world.optional_kinds[BANDWIDTH_BUDGETS] = OptionalKind()
    stage.policy(metrics=METRICS)
    members = [
        {
            "name": who,
            "user": who,
            "topics": ["acc"],
            "contract": {"perPartition": {"produce": "10M"}},
        }
        for who in ("alice", "bob")
    ]
    spec = {
        "policyRef": {"name": "orders"},
        "level": "L2",
        "throttledRates": {"perPartition": {"produce": "1M"}},
        "labels": {"team": "search"},
        "members": members,
    }
    stage.kubernetes.create(
        BUSINESS_TIERS, {"metadata": {"name": "search", "namespace": "streaming"}, "spec": spec}
    )
    run(stage, alice=1, bob=1)
    assert stage.produce(ALICE) == "10000000"
    return stage


def run(stage: Stage, **sent_mb: float) -> None:
    """A pass a minute later, with these rates, evenly over the brokers."""
    stage.now += 60
    clients = {
        (Entity(who), broker, IN): ClientRate(stage.now - 1, mb * 1_000_000 / 3, 0.0)
        for who, mb in sent_mb.items()
        for broker in (1, 2, 3)
    }
    stage.readings = Readings(stage.now, 15.0, clients=clients)
    stage.world.relist(BANDWIDTH_BUDGETS)
    stage.run()


def restart(stage: Stage) -> None:
    """A new operator process that has looked for budgets once."""
    stage.restart()
    stage.world.optional_kinds[BANDWIDTH_BUDGETS] = OptionalKind()
    stage.world.relist(BANDWIDTH_BUDGETS)


def put(stage: Stage, name: str = "search", total: str = "20M", **spec: Any) -> ObjectRef:
    fields = {
        "policyRef": {"name": "orders"},
        "total": {"produce": total},
        "members": MEMBERS,
        **spec,
    }
    raw = stage.kubernetes.create(
        BANDWIDTH_BUDGETS, {"metadata": {"name": name, "namespace": "streaming"}, "spec": fields}
    )
    return ObjectRef.of(BANDWIDTH_BUDGETS, raw)


def status(stage: Stage, ref: ObjectRef) -> dict[str, Any]:
    found: dict[str, Any] = stage.kubernetes.get(ref)["status"]
    return found


def test_it_is_divided_and_reported(stage: Stage, golden: Callable[[str], None]) -> None:
    ref = put(stage)
    for _ in range(4):  # the last one is below half of what was in force
        run(stage, alice=12, bob=2)
    assert stage.produce(ALICE) == "5166666"
    assert stage.produce(BOB) == "1500000"
    assert stage.condition(ref) == ("True", "BudgetDivided")
    found = status(stage, ref)
    assert found["measured"] == {"produce": 14_000_000}
    assert found["permitted"] == {"produce": 19_999_998}
    assert found["summary"] == {"members": 2, "produce": "14 of 20 MB/s"}
    assert found["members"][0] == {
        "tier": "streaming/search",
        "member": "alice",
        "level": "L2",
        "measured": {"produce": 12_000_000},
        "allowed": {"produce": 15_500_000},
        "permitted": {"produce": 15_499_998},
        "limitedBy": "Budget",
    }
    golden(stage.message(ref))
    labels = {"policy_namespace": "streaming", "policy": "orders", "budget": "search"}
    shown = {
        what: stage.telemetry.registry.get_sample_value(
            f"tidegate_budget_{what}", {**labels, "direction": "produce"}
        )
        for what in ("total_bytes_per_second", "permitted_bytes_per_second", "members_held_back")
    }
    assert list(shown.values()) == [20_000_000, 19_999_998, 0]


def test_rates_that_swing_write_no_status(stage: Stage) -> None:
    ref = put(stage)
    for _ in range(4):
        run(stage, alice=12, bob=2)
    version = stage.kubernetes.get(ref)["metadata"]["resourceVersion"]
    for alice in (12.5, 11.5, 12.9):
        run(stage, alice=alice, bob=2)
    assert stage.kubernetes.get(ref)["metadata"]["resourceVersion"] == version


def test_its_deletion_gives_contracts_back(stage: Stage) -> None:
    ref = put(stage)
    run(stage, alice=12, bob=2)
    stage.kubernetes.delete(ref)
    run(stage, alice=12, bob=2)
    assert stage.produce(ALICE) == stage.produce(BOB) == "10000000"


def test_a_new_operator_keeps_the_limits_until_it_has_readings(stage: Stage) -> None:
    ref = put(stage)
    run(stage, alice=12, bob=2)
    restart(stage)
    stage.readings = None
    stage.run()
    assert stage.produce(ALICE) == "5166666"
    assert stage.condition(ref) == ("Unknown", "BudgetUnmeasured")


@pytest.mark.parametrize("why", [REFUSED, NOT_SERVED])
def test_where_budgets_were_never_served_everything_is_as_without_them(
    stage: Stage, why: NotFound | Unauthorized
) -> None:
    stage.kubernetes.refuse_lists(BANDWIDTH_BUDGETS, why)
    ref = put(stage)
    for _ in range(2):
        restart(stage)
        run(stage, alice=12, bob=2)
        assert stage.produce(ALICE) == "10000000"
        assert ready(stage) == ("True", "InSync")
    assert "status" not in stage.kubernetes.get(ref)


def ready(stage: Stage) -> tuple[str, str]:
    """The condition Ready of the policy."""
    return stage.condition(policy_ref(stage))


def policy_ref(stage: Stage) -> ObjectRef:
    (policy,) = stage.kubernetes.list_all(BROKER_BANDWIDTH_POLICIES).items
    return ObjectRef.of(BROKER_BANDWIDTH_POLICIES, policy)


@pytest.mark.parametrize("why", [REFUSED, NOT_SERVED])
def test_a_new_operator_that_may_not_list_them_holds_a_policy_that_has_some_and_goes_on_later(
    stage: Stage, why: NotFound | Unauthorized
) -> None:
    ref = put(stage)
    run(stage, alice=12, bob=2)
    stage.kubernetes.refuse_lists(BANDWIDTH_BUDGETS, why)
    for _ in range(2):  # the status is kept by the hold itself, too
        restart(stage)
        stage.run()
        assert stage.produce(ALICE) == "5166666"
        assert ready(stage) == ("False", "BudgetsUnread")
        assert stage.condition(policy_ref(stage), "Stalled") == ("True", "BudgetsUnread")
    stage.kubernetes.refuse_lists(BANDWIDTH_BUDGETS, None)
    for _ in range(3):
        run(stage, alice=2, bob=12)
    assert stage.condition(ref) == ("True", "BudgetDivided")
    assert (stage.produce(ALICE), stage.produce(BOB)) == ("1500000", "5000000")


def test_a_right_that_is_revoked_keeps_what_is_known_for_a_while_and_then_holds(
    stage: Stage, golden: Callable[[str], None]
) -> None:
    put(stage)
    run(stage, alice=12, bob=2)
    stage.kubernetes.refuse_lists(BANDWIDTH_BUDGETS, REFUSED)
    run(stage, alice=12, bob=2)
    assert ready(stage) != ("False", "BudgetsUnread")
    stage.now += stage.world.settings.list_stale_after_seconds
    run(stage, alice=2, bob=12)
    assert ready(stage) == ("False", "BudgetsUnread")
    golden(stage.message(policy_ref(stage)))
    assert stage.produce(ALICE) == "5166666"


def test_a_definition_that_is_gone_for_good_restores_contracts_and_says_so(
    stage: Stage, golden: Callable[[str], None]
) -> None:
    put(stage)
    run(stage, alice=12, bob=2)
    stage.kubernetes.refuse_lists(BANDWIDTH_BUDGETS, NOT_SERVED)
    run(stage, alice=12, bob=2)
    assert stage.produce(ALICE) == "5166666"  # a server may lack it for a moment
    run(stage, alice=12, bob=2)
    assert stage.produce(ALICE) == stage.produce(BOB) == "10000000"
    assert ready(stage) == ("True", "InSync")
    (event,) = [one for one in stage.kubernetes.events if one.reason == "BudgetsGone"]
    golden(event.note)
    assert "budgets" not in stage.kubernetes.get(policy_ref(stage))["status"]
    run(stage, alice=12, bob=2)
    assert stage.event_reasons().count("BudgetsGone") == 1


def test_a_new_operator_restores_contracts_when_the_definition_was_deleted_before_it(
    stage: Stage,
) -> None:
    put(stage)
    run(stage, alice=12, bob=2)
    stage.kubernetes.refuse_lists(BANDWIDTH_BUDGETS, NOT_SERVED)
    restart(stage)
    stage.run()
    assert stage.produce(ALICE) == "5166666"
    run(stage, alice=12, bob=2)
    assert stage.produce(ALICE) == "10000000"


def test_a_refusal_in_between_is_no_sign_of_a_deleted_definition(stage: Stage) -> None:
    put(stage)
    run(stage, alice=12, bob=2)
    for why in (NOT_SERVED, REFUSED, NOT_SERVED):
        stage.kubernetes.refuse_lists(BANDWIDTH_BUDGETS, why)
        run(stage, alice=12, bob=2)
        assert stage.produce(ALICE) == "5166666"


def test_the_status_names_budgets_before_their_first_quota_is_written(stage: Stage) -> None:
    put(stage)
    noted: list[object] = []

    def look(*_: object) -> None:
        noted.append(stage.kubernetes.get(policy_ref(stage))["status"].get("budgets"))

    stage.store.faults.before_next_commit(look)
    run(stage, alice=12, bob=2)
    assert noted == [1]


def test_a_policy_without_budgets_goes_on_while_they_cannot_be_listed(stage: Stage) -> None:
    stage.kubernetes.refuse_lists(BANDWIDTH_BUDGETS, REFUSED)
    stage.now += stage.world.settings.list_stale_after_seconds
    run(stage, alice=12, bob=2)
    assert ready(stage) == ("True", "InSync")


def test_a_policy_that_is_deleted_needs_no_budgets(stage: Stage) -> None:
    put(stage)
    run(stage, alice=12, bob=2)
    stage.kubernetes.refuse_lists(BANDWIDTH_BUDGETS, REFUSED)
    restart(stage)
    stage.kubernetes.delete(policy_ref(stage))
    for _ in range(3):
        run(stage, alice=12, bob=2)
    assert stage.produce(ALICE) is None
    assert not stage.kubernetes.list_all(BROKER_BANDWIDTH_POLICIES).items


def test_budgets_that_cannot_be_listed_hold_everything(stage: Stage) -> None:
    put(stage)
    run(stage, alice=12, bob=2)
    stage.now += 3 * 3600
    stage.run(relisted=True)  # of the other kinds
    assert stage.produce(ALICE) == "5166666"
    (policy,) = stage.world.policies().values()
    (condition,) = [one for one in policy["status"]["conditions"] if one["type"] == "Ready"]
    assert condition["reason"] == "ListIncomplete"
    assert "BandwidthBudgets" in condition["message"]


def test_one_that_cannot_be_read_holds_its_policy(stage: Stage) -> None:
    ref = put(stage)
    run(stage, alice=12, bob=2)
    stage.kubernetes.edit(ref, lambda raw: raw["spec"].update(total={"produce": 12}))
    run(stage, alice=1, bob=12)
    assert stage.produce(ALICE) == "5166666"
    assert stage.condition(ref) == ("False", "InvalidSpec")


def test_without_members_it_says_so(stage: Stage) -> None:
    ref = put(stage, members={"tiers": ["gone"]})
    run(stage, alice=12, bob=2)
    assert stage.condition(ref) == ("False", "NoSuchMember")


def test_a_parent_names_its_children(stage: Stage) -> None:
    parent = put(stage, "retail", "10M", members=None)
    child = put(stage, parent={"name": "retail"})
    run(stage, alice=12, bob=2)
    assert status(stage, parent)["children"] == ["streaming/search"]
    assert status(stage, parent)["measured"] == {"produce": 14_000_000}
    allowed = [one["allowed"]["produce"] for one in status(stage, child)["members"]]
    assert allowed == [7_800_000, 2_200_000]
    for _ in range(3):
        run(stage, alice=12, bob=2)
    assert stage.produce(ALICE) == "2600000"


def test_while_the_cluster_does_not_answer_it_is_unknown_and_keeps_what_it_showed(
    stage: Stage,
) -> None:
    ref = put(stage)
    run(stage, alice=12, bob=2)
    stage.store.fail_next(Unreachable(Reason.ZOOKEEPER_UNREACHABLE, "no answer"))
    run(stage, alice=12, bob=2)
    assert stage.condition(ref)[0] == "Unknown"
    assert status(stage, ref)["summary"]["members"] == 2


def test_one_without_its_policy_says_so(stage: Stage) -> None:
    ref = put(stage)
    raw = stage.kubernetes.get(ref)
    stage.world.reporter.without_policy([(BANDWIDTH_BUDGETS, raw, "streaming/gone")])
    assert stage.condition(ref) == ("False", "PolicyNotFound")
