"""The health that Argo CD shows for statuses that a whole operator wrote in memory, in the common states."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest
from structlog.testing import capture_logs

from controller_logic.model import QuotaKey
from controller_logic.reasons import Reason
from tests.unit.control.stage import ALICE, Stage
from tests.unit.gitops.argo_lua import health_of
from tests.unit.gitops.samples import script_of
from tidegate.errors import Unreachable
from tidegate.kube.api import QUOTA_OVERRIDES, ObjectRef


@pytest.fixture(autouse=True)
def log() -> Iterator[list[Any]]:
    """Discard the log of the operator."""
    with capture_logs() as lines:
        yield lines


@pytest.fixture
def stage() -> Stage:
    return Stage(now=datetime.fromisoformat("2026-11-21T12:00:10Z").timestamp())


def shown(stage: Stage, ref: ObjectRef) -> str:
    raw = stage.kubernetes.get(ref)
    return health_of(script_of(raw["kind"]), raw)["status"]


def shown_all(stage: Stage, *refs: ObjectRef) -> list[str]:
    return [shown(stage, ref) for ref in refs]


def override(stage: Stage, user: str = "alice") -> ObjectRef:
    rates = {"action": "SetRates", "rates": {"perPartition": {"produce": "20M"}}}
    ends = {"expiresAt": "2026-11-22T12:00:00Z", "reason": "agreed"}
    said = {"policyRef": {"name": "orders"}, "target": {"user": user}, **rates, **ends}
    raw = stage.kubernetes.create(QUOTA_OVERRIDES, {"metadata": {"name": "more", "namespace": "streaming"}, "spec": said})
    ref = ObjectRef.of(QUOTA_OVERRIDES, raw)
    stage.kubernetes.edit(ref, lambda obj: obj["metadata"].update(creationTimestamp="2026-11-21T12:00:00Z"))
    return ref


def test_a_contract_in_force_is_healthy_and_so_is_its_override(stage: Stage) -> None:
    refs = stage.policy(), stage.tier(), override(stage)
    assert shown_all(stage, *refs) == ["Progressing"] * 3
    stage.run()
    assert shown_all(stage, *refs) == ["Healthy"] * 3


def test_an_override_that_is_over_is_healthy(stage: Stage) -> None:
    stage.policy()
    stage.tier()
    over = override(stage)
    stage.run()
    stage.now += 24 * 3600
    stage.run()
    assert (shown(stage, over), stage.condition(over)) == ("Healthy", ("False", "OverrideExpired"))


def test_a_policy_that_only_observes_is_healthy(stage: Stage) -> None:
    refs = stage.policy(mode="Observe"), stage.tier()
    stage.run()
    assert shown_all(stage, *refs) == ["Healthy", "Healthy"]


def test_a_pause_suspends_the_policy_and_all_that_belongs_to_it(stage: Stage) -> None:
    refs = stage.policy(annotations={"tidegate.io/paused": "true"}), stage.tier(), override(stage)
    stage.run()
    assert shown_all(stage, *refs) == ["Suspended"] * 3


def test_a_quota_on_its_way_down_is_progressing_and_its_policy_healthy(stage: Stage) -> None:
    refs = stage.policy(), stage.tier()
    stage.store.put(ALICE, {QuotaKey.PRODUCER_BYTE_RATE: "80000000"})
    stage.run()
    assert shown_all(stage, *refs) == ["Healthy", "Progressing"]


def test_an_outage_degrades_the_policy_and_leaves_its_tiers_in_suspense(stage: Stage) -> None:
    refs = stage.policy(), stage.tier()
    stage.run()
    stage.leaders.error = Unreachable(Reason.BROKERS_UNREACHABLE, "No broker answers.")
    stage.run()
    assert shown_all(stage, *refs) == ["Degraded", "Progressing"]


def without_topic(stage: Stage) -> None:
    stage.leaders.leaders.clear()


def nothing(_: Stage) -> None:
    pass


@pytest.mark.parametrize(
    ("arranged", "second_tier", "expected"), [(without_topic, False, ["Progressing"]), (nothing, True, ["Healthy", "Degraded"])]
)
def test_a_tier_waits_for_a_topic_and_is_degraded_by_a_conflict(
    stage: Stage, arranged: Callable[[Stage], None], second_tier: bool, expected: list[str]
) -> None:
    stage.policy()
    tiers = [stage.tier(), *([stage.tier("silver")] if second_tier else [])]
    arranged(stage)
    stage.run()
    assert shown_all(stage, *tiers) == expected


def test_an_override_without_a_member_waits_and_one_that_does_not_fit_is_degraded(stage: Stage) -> None:
    stage.policy()
    stage.tier()
    no_one = override(stage, user="missing")
    stage.run()
    assert shown(stage, no_one) == "Progressing"
    unfit = {"target": {"user": "alice"}, "rates": {"perBroker": {"fetch": "1M"}}}
    stage.kubernetes.edit(no_one, lambda raw: raw["spec"].update(unfit))
    stage.run()
    assert (shown(stage, no_one), stage.condition(no_one)) == ("Degraded", ("False", "OverrideUnfit"))
