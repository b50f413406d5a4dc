"""Killed before or after any call of any kind of pass, a new process ends in the same znodes,
ledger and statuses.

`tests/integration/operator/test_killed.py` does one of these on a real ZooKeeper.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.doubles.kubernetes import InMemoryKubernetes
from tests.doubles.quota_store import MemoryQuotaStore
from tests.unit.control.mortality import Fate, Killed, Mortal
from tests.unit.control.stage import ALICE, Stage
from tidegate.errors import NotFound
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore
from tidegate.kube.api import ObjectRef

SCRAM = "salt=c2FsdA==,stored_key=a2V5,server_key=a2V5,iterations=4096"
BEFORE = {"version": 1, "config": {"SCRAM-SHA-256": SCRAM, "producer_byte_rate": "7000000"}}
LATER_PASSES = 2


class Systems:
    """The systems around processes: a Kafka tree, a Kubernetes, and a policy with the tiers gold
    (alice) and silver (carol).
    """

    def __init__(self, deletion_policy: str = "Restore") -> None:
        self.kubernetes = InMemoryKubernetes()
        self.memory = MemoryQuotaStore(topics=["acc"])
        self.memory.put_raw(ALICE, json.dumps(BEFORE).encode())
        self.stage = Stage(self.kubernetes, self.memory)
        self.process(Fate())
        self.policy = self.stage.policy(removal={"maxPercent": 100}, deletionPolicy=deletion_policy)
        self.gold = self.stage.tier("gold", user="alice", rate="10M")
        self.silver = self.stage.tier("silver", user="carol", rate="2M")
        self.refs: list[ObjectRef] = [self.policy, self.gold, self.silver]

    def process(self, fate: Fate) -> None:
        """Start a new process, with nothing remembered."""
        self.stage.store = ZooKeeperQuotaStore(Mortal(self.memory.tree, fate))
        self.stage.kubernetes = Mortal(self.kubernetes, fate)
        self.stage.restart()

    def world(self) -> dict[str, Any]:
        nodes = {
            path: json.loads((node.data or b"null").replace(self.policy.uid.encode(), b"uid"))
            for path, node in self.memory.tree._nodes.items()
            if path.startswith(("/config/users", "/tidegate"))
        }
        return {"nodes": nodes, "objects": {ref.name: self._object(ref) for ref in self.refs}}

    def _object(self, ref: ObjectRef) -> Any:
        try:
            found = self.kubernetes.get(ref)
        except NotFound:
            return None
        return found.get("status"), found["metadata"].get("finalizers")


def _first(_: Systems) -> None:
    """Nothing was applied yet."""


def _raise(systems: Systems) -> None:
    _settle(systems)
    systems.kubernetes.edit(systems.gold, lambda raw: _contract(raw, "30M"))


def _lower(systems: Systems) -> None:
    _settle(systems)
    systems.kubernetes.edit(systems.gold, lambda raw: _contract(raw, "1M"))


def _contract(raw: dict[str, Any], rate: str) -> None:
    raw["spec"]["members"][0]["contract"]["perPartition"]["produce"] = rate


def _one_tier_goes_and_one_comes(systems: Systems) -> None:
    _settle(systems)
    systems.kubernetes.delete(systems.gold)
    systems.refs.append(systems.stage.tier("bronze", user="bob", rate="3M"))


def _leaders_move(systems: Systems) -> None:
    _settle(systems)
    systems.stage.leaders.leaders, systems.stage.leaders.brokers = (
        {"acc": {1: 2, 2: 1}},
        frozenset({1, 2}),
    )


def _the_policy_goes(systems: Systems) -> None:
    _settle(systems)
    systems.kubernetes.delete(systems.policy)


def _settle(systems: Systems) -> None:
    systems.stage.run()
    systems.stage.now += 60
    systems.stage.run()
    systems.stage.now += 60


Scenario = tuple[str, Callable[[Systems], None]]
SCENARIOS: dict[str, Scenario] = {
    "first": ("Restore", _first),
    "raise": ("Restore", _raise),
    "lower": ("Restore", _lower),
    "tiers": ("Restore", _one_tier_goes_and_one_comes),
    "leaders": ("Restore", _leaders_move),
    "restore": ("Restore", _the_policy_goes),
    "retain": ("Retain", _the_policy_goes),
}


def _end(scenario: Scenario, fate: Fate) -> tuple[dict[str, Any], bool]:
    """The world after a pass under this fate, and some more of a new process; and whether the first
    one died.
    """
    systems = Systems(scenario[0])
    scenario[1](systems)
    systems.process(fate)
    died = False
    try:
        systems.stage.run()
    except Killed:
        died = True
    systems.process(Fate())
    for _ in range(LATER_PASSES):
        systems.stage.run()
        systems.stage.now += 40
    return systems.world(), died


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS.keys())
def test_killed_at_any_call_a_new_process_ends_in_the_same_world(
    scenario: Scenario, after: bool
) -> None:
    expected, _ = _end(scenario, Fate())
    assert expected["nodes"]["/config/users/alice"]["config"]["SCRAM-SHA-256"] == SCRAM
    deaths = 0
    while True:
        world, died = _end(scenario, Fate(deaths, after=after))
        assert world == expected, f"killed {'after' if after else 'before'} call {deaths}"
        if not died:
            break
        deaths += 1
    assert deaths > 5
