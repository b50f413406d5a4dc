"""Takes one fix or protection out of the operator, so that the simulation shows that it finds that.

Each function names what it undoes. They change modules of this interpreter: nothing puts them back.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from textwrap import dedent
from types import FunctionType
from typing import Any

import tidegate.control.manager as manager
import tidegate.control.ownership as ownership
import tidegate.kafka.claim as claims
import tidegate.kafka.quota_node as quota_node
import tidegate.kafka.zookeeper.store as store
import tidegate.kafka.zookeeper.writer as writer
import tidegate.kube.lease as lease
import tidegate.observe.observation as observe
import tidegate_logic.decide as decide
import tidegate_logic.readings as readings
from tests.simulation import process
from tidegate.kafka.quota_store import Claim
from tidegate.kube import api
from tidegate_logic.contracts import budgets
from tidegate_logic.contracts.desired import Desired
from tidegate_logic.model import DeletionPolicy
from tidegate_logic.quotas import budget, entity_plan, leaving, plan, steps
from tidegate_logic.throttle import buckets, escalation, nic_status, raises, throttle_pass


def a1_budget() -> None:
    """Undoes `free` in `deletion_plan` (quotas/plan.py): giving back is charged to the budget."""
    fixed = plan.deletion_plan

    def deletion_plan(wanted, ours, quotas, *, policy, **rest):  # type: ignore[no-untyped-def]
        if policy.deletion_policy is DeletionPolicy.RETAIN:
            return fixed(wanted, ours, quotas, policy=policy, **rest)
        return plan.make_plan(Desired(), ours, quotas, policy=policy, **rest)

    decide.deletion_plan = deletion_plan  # type: ignore[attr-defined]


def a1_deadline() -> None:
    """Undoes `Deletion._goes_on` (control/ownership.py): the deadline is from the first pass."""
    ownership.Deletion._goes_on = lambda *_: False  # type: ignore[method-assign]


def a1() -> None:
    """Both of A1, as it was."""
    a1_budget()
    a1_deadline()


def a2() -> None:
    """Undoes uid and epoch of the claim (claim.py, observe.py)."""
    fixed = store.next_claim

    def next_claim(current: Claim | None, wanted: Claim, replaces: str, **rest: Any) -> Claim:
        if current is not None and current.policy_key == wanted.policy_key:
            is_same = current.policy_uid == wanted.policy_uid
            return current if is_same else replace(wanted, epoch=current.epoch)
        return fixed(current, wanted, replaces, **rest)

    store.next_claim = next_claim  # type: ignore[attr-defined]
    claims._require_claim_of = lambda *_: None  # type: ignore[attr-defined]
    observe.Expected.is_claimed_elsewhere = lambda *_: False  # type: ignore[method-assign]


def a2_transaction() -> None:
    """Undoes `_require_claim_of` alone: no transaction compares the claim's uid and epoch."""
    claims._require_claim_of = lambda *_: None  # type: ignore[attr-defined]


def a3() -> None:
    """Undoes Leases in the operator's own namespace (kube/lease.py): each is in its policy's."""
    process.LEASES_ARE_SAFE = True  # so namespaces are deleted, which this cannot survive
    address = getattr(lease, "LeaseAddress", None)
    if address is None:
        return  # a version that has no such fix
    fixed = address.of_policy

    def of_policy(_: type, policy_key: str, *, operator_namespace: str) -> object:
        return fixed(policy_key, operator_namespace=policy_key.partition("/")[0])

    address.of_policy = classmethod(of_policy)


def a4() -> None:
    """Undoes calls for Leases beside each other (control/manager.py), within 2 s (kube/api.py)."""
    manager._LEASE_CALLS_AT_ONCE = 1  # type: ignore[attr-defined]
    api.LEASE_CALL_SECONDS = 30.0  # type: ignore[misc]  # 10 s, three times


def a11_window() -> None:
    """Undoes the quarter of an hour of `judge` (quotas/plan.py): one pass is judged alone."""
    plan._recent = lambda memory, _: replace(memory, managed=(), left={})  # type: ignore[attr-defined]


def a11_confirmation() -> None:
    """Undoes `_confirmation` (quotas/plan.py): a count is confirmed, and as often as one likes."""
    plan._confirmation = lambda leaving, _: str(len(leaving))  # type: ignore[attr-defined]


def a11() -> None:
    """Both of A11, as it was."""
    a11_window()
    a11_confirmation()


def replication_record() -> None:
    """Undoes the record of replication throttles (zookeeper/store.py): nobody knows what is ours."""
    store.ZooKeeperQuotaStore.keep_throttle_record = lambda *_, **__: None  # type: ignore[method-assign]


def grace() -> None:
    """Undoes the grace (quotas/leaving.py): what no contract names is restored at once."""
    leaving.GRACE_SECONDS = 0.0  # type: ignore[misc]


def grace_breaks() -> None:
    """Undoes that the grace begins again after a break (quotas/leaving.py): two looks will do."""
    leaving._LONGEST_BREAK_SECONDS = float("inf")  # type: ignore[misc]


def restored_memory() -> None:
    """Undoes the memory of restored quotas (quotas/leaving.py): each first quota is set at once."""
    entity_plan.remembered = lambda *_, **__: None  # type: ignore[attr-defined]


# --- protections of every write, as the review took them out ---


_edited: dict[FunctionType, str] = {}


def _edit(function: Any, old: str, new: str) -> None:
    """Put other words into the source of a function, for everyone who has it."""
    function = getattr(function, "fget", function)
    assert isinstance(function, FunctionType)
    source = _edited.get(function, dedent(inspect.getsource(function)))
    assert old in source, f"{function.__qualname__} has no {old!r} any more"
    made: dict[str, Any] = {}
    source = _edited[function] = source[source.index("def ") :].replace(old, new)
    exec(compile(source, function.__code__.co_filename, "exec"), function.__globals__, made)
    function.__code__ = made[function.__name__].__code__


def scram_dropped() -> None:
    """Undoes keeping the keys of others when a znode is rewritten (kafka/quota_node.py)."""
    _edit(
        quota_node.QuotaContent.changed,
        "for setting in self.settings]",
        "for setting in self.settings if setting.key in _QUOTA_KEYS]",
    )


def scram_reencoded() -> None:
    """Undoes keeping the bytes of others (kafka/quota_node.py): their values are made as JSON again."""
    _edit(
        quota_node.QuotaContent.to_bytes,
        "{setting.key_token}:{setting.value_token}",
        "{json.dumps(setting.key)}:{json.dumps(setting.value)}",
    )


def scram_reordered() -> None:
    """Undoes keeping the order of settings (kafka/quota_node.py): those of others go last."""
    _edit(
        quota_node.QuotaContent.changed,
        "return QuotaContent((*(setting for setting in kept if setting is not None), *added))",
        "every = (*(setting for setting in kept if setting is not None), *added)\n"
        "    return QuotaContent(tuple(sorted(every, key=lambda one: one.key not in _QUOTA_KEYS)))",
    )


def cas_seen() -> None:
    """Undoes comparing what a decision saw with what is there now (zookeeper/writer.py)."""
    _edit(writer.BatchWriter._is_sound, "if not now.is_still(write.seen):", "if False:")


def cas_version() -> None:
    """Undoes the versions of quota and ledger nodes in the transaction (zookeeper/writer.py)."""
    _edit(
        writer.NodeChange.operation,
        'self.after.data or b"", self.before.version',
        'self.after.data or b"", -1',
    )
    _edit(writer.NodeChange.operation, "(self.path, self.before.version)", "(self.path, -1)")


def removal_guard() -> None:
    """Undoes the guard against mass removals (quotas/plan.py)."""
    _edit(plan.judge, "if policy.deleting:", "if True:")


def mute_contract() -> None:
    """Undoes safe steps of contracts and of restoring (quotas/steps.py): one write goes all the way."""
    _edit(
        steps.MuteGuard.step,
        "max(target, largest_safe_step(exposure, self.max_mute_seconds, self.window))",
        "target",
    )


def mute_throttle() -> None:
    """Undoes safe steps of the throttle (throttle/buckets.py)."""
    buckets.Bucket.safe_step = lambda *_: 1  # type: ignore[method-assign]
    buckets.Bucket.safe_step_later = lambda *_: 1  # type: ignore[method-assign]


def mute_wait() -> None:
    """Undoes the distance between two safe steps (quotas/steps.py)."""
    steps.MuteGuard.wait_seconds = lambda *_, **__: 0.0  # type: ignore[method-assign]


def write_budget() -> None:
    """Undoes the write budget (quotas/budget.py): everything is admitted."""
    _edit(budget.admit, "if not write.charged:", "if True:")


def stale_nic() -> None:
    """Undoes the age of NIC samples (throttle/nic_status.py)."""
    _edit(
        nic_status._Judge._refusal,
        "if not abs(age_seconds) <= settings.stale_after_seconds:",
        "if False:",
    )


def stale_samples() -> None:
    """Undoes the age of NIC samples and of client rates (readings.py)."""
    stale_nic()
    _edit(
        readings.flows_of,
        "return abs(now_seconds - at_seconds) <= stale_after_seconds",
        "return True",
    )


def holds() -> None:
    """Undoes holds (decide.py): a pass decides although something is missing, or it is paused."""
    _edit(
        decide._decide,
        "if holds or observation.quotas is None:",
        "if None in (observation.quotas, observation.tiers, observation.topology):",
    )


def claim_epoch() -> None:
    """Undoes the claim's epoch in each batch (kafka/claim.py)."""
    _edit(
        claims._require_claim_of,
        "if owner.epoch and (now is None or now.epoch != owner.epoch):",
        "if False:",
    )


def lease_held() -> None:
    """Undoes the Lease's question before writes (control/manager.py): who once had it writes on."""
    _edit(
        manager.Manager._make_controller,
        "may_write=lambda: lease.remaining_seconds() >= _BATCH_SECONDS",
        "may_write=lambda: True",
    )


def l0() -> None:
    """Undoes all that keeps L0 from being throttled: it is an L1 with a fifth of its contract."""
    _edit(
        throttle_pass.ManagedRates._rate,
        "None if floor is None else floor.value",
        "max(1024, contract // 5) if floor is None and owner.level is Level.L0 else "
        "None if floor is None else floor.value",
    )
    _edit(
        throttle_pass.ManagedRates._rate,
        "owner.level,",
        "Level.L1 if owner.level is Level.L0 else owner.level,",
    )
    _edit(
        throttle_pass.ManagedRates.floor,
        "return self._wanted.floor_of(self._wanted.owners[entity]).targets[KEY_OF[direction]]",
        "owner, key = self._wanted.owners[entity], KEY_OF[direction]\n"
        "    return (self._wanted.floor_of(owner).targets or owner.promise.targets)[key]",
    )


def budget_parent() -> None:
    """Undoes the bound of a budget's parents (contracts/budgets.py): each has its own total only."""
    _edit(budgets._Division._path, "path.append(parent)", "break")


def budget_minimum() -> None:
    """Undoes minimums (contracts/budgets.py): what is short is short for those of low levels."""
    _edit(budgets._Division._claim, "* percent / 100", "* 0.0")


def budget_hysteresis() -> None:
    """Undoes the hysteresis of budgets (contracts/budgets.py): every other share is written."""
    _edit(budgets._Division._divide, "settled(", "(lambda *_, now, **__: now)(")


def headroom() -> None:
    """Undoes the share of raises that are not in force (throttle/raises.py): each has all headroom."""
    _edit(raises._Raiser.review, "if bucket.level is not level or", "if True or")
    raises._Raiser._left = lambda self, broker: self._room.get(broker, raises.inf)  # type: ignore[method-assign, attr-defined]
    escalation._with_late_raises = lambda known, *_: known  # type: ignore[attr-defined]


FIXES: dict[str, Callable[[], None]] = {
    "A1": a1,
    "A1-budget": a1_budget,
    "A1-deadline": a1_deadline,
    "A2": a2,
    "A2-transaction": a2_transaction,
    "A3": a3,
    "A4": a4,
    "A11": a11,
    "A11-window": a11_window,
    "A11-confirmation": a11_confirmation,
    "replication-record": replication_record,
    "grace": grace,
    "grace-breaks": grace_breaks,
    "restored-memory": restored_memory,
    "scram-dropped": scram_dropped,
    "scram-reencoded": scram_reencoded,
    "scram-reordered": scram_reordered,
    "cas-seen": cas_seen,
    "cas-version": cas_version,
    "removal-guard": removal_guard,
    "mute-contract": mute_contract,
    "mute-throttle": mute_throttle,
    "mute-wait": mute_wait,
    "write-budget": write_budget,
    "stale-nic": stale_nic,
    "stale-samples": stale_samples,
    "holds": holds,
    "claim-epoch": claim_epoch,
    "lease": lease_held,
    "L0": l0,
    "headroom": headroom,
    "budget-parent": budget_parent,
    "budget-minimum": budget_minimum,
    "budget-hysteresis": budget_hysteresis,
}
