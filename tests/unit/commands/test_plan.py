"""`tidegate plan` from end to end, on the in-memory twin: what it says, what it exits with, and that it writes nothing at all."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from controller_logic.model import Entity, QuotaKey
from controller_logic.reasons import Reason
from tests.goldens.golden import line_with, numbers
from tidegate.errors import Unreachable
from tidegate.kube.api import BROKER_BANDWIDTH_POLICIES, BUSINESS_TIERS

ALICE = Entity(user="alice")
FETCH = QuotaKey.CONSUMER_BYTE_RATE


def test_a_first_quota_is_planned_and_not_one_znode_changes(world: Any, policy: Any, tier: Any) -> None:
    before = world.snapshot()
    answer = world.plan(policy, tier)
    assert answer.code == 2, answer.err
    assert "user=alice" in answer.out
    assert "10.0 MB/s" in answer.out
    assert world.snapshot() == before


def test_nothing_to_do_exits_with_zero(world: Any, policy: Any, tier: Any, golden: Callable[[str], None]) -> None:
    tier["spec"]["members"][0].pop("contract")
    answer = world.plan(policy, tier)
    assert (answer.code, answer.err) == (0, "")
    assert "user=alice" not in answer.out
    golden(answer.out.splitlines()[-1])


def test_moved_leaders_show_skew_and_both_totals(world: Any, policy: Any, tier: Any) -> None:
    world.leaders = {"acc": {1: 2, 2: 1}}
    row = next(line for line in world.plan(policy, tier).out.splitlines() if line.startswith("user=alice"))
    assert row.split() == [
        *("user=alice", "fetch", "unlimited", "20.0", "MB/s", "20.0", "MB/s", "FirstQuota", "3", "1.33"),
        *("30.0", "MB/s", "40.0", "MB/s", "-", "streaming/core", "/", "shop"),
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
        {**head, "metadata": {"name": "more"}, "spec": {**spec, "rates": {"perPartition": {"fetch": "30M"}}}},
        {**head, "metadata": {"name": "unfit"}, "spec": {**spec, "rates": rates}},
    ]
    answer = world.plan(policy, tier, *[{**one, "metadata": {**one["metadata"], "namespace": "streaming"}} for one in overrides])
    in_force, unfit = line_with(answer.out, "streaming/more", "agreed"), line_with(answer.out, "streaming/unfit")
    for name in ("user=alice", "2026-11-30T06:00:00Z", "agreed"):
        assert name in in_force
    assert "streaming/core shop" in unfit
    golden(f"{in_force}\n{unfit}")


@pytest.mark.parametrize(("output", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_the_document_has_the_same_plan(world: Any, policy: Any, tier: Any, output: str, read: Any) -> None:
    answer = world.plan(policy, tier, options=("--output", output))
    document = read(answer.out)
    assert answer.code == 2
    assert [change["next"] for change in document["changes"]] == ["10000000"]
    assert document["summary"]["entitiesToWrite"] == 1


@pytest.mark.parametrize("by", ["annotation", "suspend"])
def test_a_paused_policy_shows_what_ends_with_the_pause(world: Any, policy: Any, tier: Any, by: str) -> None:
    if by == "annotation":
        policy["metadata"]["annotations"] = {"tidegate.io/paused": "true"}
    else:
        policy["spec"]["suspend"] = True
    answer = world.plan(policy, tier)
    assert answer.code == 2
    assert f"paused by {'the annotation tidegate.io/paused' if by == 'annotation' else 'spec.suspend'}." in answer.out
    assert "user=alice" in answer.out


def test_in_observe_mode_the_plan_is_the_same(world: Any, policy: Any, tier: Any, golden: Callable[[str], None]) -> None:
    policy["spec"]["mode"] = "Observe"
    answer = world.plan(policy, tier)
    assert answer.code == 2
    observed = json.loads(world.plan(policy, tier, options=("-o", "json")).out)["changes"]
    policy["spec"]["mode"] = "Enforce"
    assert observed == json.loads(world.plan(policy, tier, options=("-o", "json")).out)["changes"]
    golden(answer.out.splitlines()[1])


def test_a_lowering_goes_in_steps_and_says_what_it_costs(world: Any, policy: Any, tier: Any, golden: Callable[[str], None]) -> None:
    world.store.put(ALICE, {FETCH: "80000000"})
    answer = world.plan(policy, tier)
    row = next(line for line in answer.out.splitlines() if line.startswith("user=alice"))
    assert numbers(row) >= {40.0, 12}
    golden(answer.out)


def test_a_mute_is_shown_beside_the_rate_that_falls_and_not_beside_the_one_that_rises(world: Any, policy: Any, tier: Any) -> None:
    tier["spec"]["members"][0]["contract"]["perPartition"]["produce"] = "10M"
    world.store.put(ALICE, {FETCH: "80000000", QuotaKey.PRODUCER_BYTE_RATE: "5000000"})
    fetch, produce = (line for line in world.plan(policy, tier).out.splitlines() if line.startswith("user=alice"))
    assert 12 in numbers(fetch)
    assert 12 not in numbers(produce)


def test_an_unreachable_zookeeper_is_a_hold_and_an_error(world: Any, policy: Any, tier: Any) -> None:
    away = Unreachable(Reason.ZOOKEEPER_UNREACHABLE, "ZooKeeper zk-1:2181 did not answer within 10 s.")
    world.store.fail_next(away)
    answer = world.plan(policy, tier)
    assert answer.code == 1
    assert away.reason.value in line_with(answer.out, "warning: ", away.message)


def test_the_cluster_of_another_policy_is_not_planned_for(world: Any, policy: Any, tier: Any, golden: Callable[[str], None]) -> None:
    world.store.claim("other/policy", "uid")
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


def test_from_the_cluster_the_same_objects_give_the_same_changes(world: Any, policy: Any, tier: Any) -> None:
    from_files = json.loads(world.plan(policy, tier, options=("-o", "json")).out)
    world.kubernetes.create(BROKER_BANDWIDTH_POLICIES, policy)
    world.kubernetes.create(BUSINESS_TIERS, tier)
    from_cluster = json.loads(world.run("plan", "--namespace", "streaming", "-o", "json").out)
    assert from_cluster["changes"] == from_files["changes"]


def test_a_tier_in_the_cluster_that_does_not_read_is_named_and_held(world: Any, policy: Any, tier: Any) -> None:
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


def test_another_address_on_the_command_line_keeps_the_policys_login(world: Any, policy: Any, tier: Any) -> None:
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
