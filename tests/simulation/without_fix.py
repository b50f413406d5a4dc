"""Takes one fix out of the operator again, so that the simulation shows that it finds the defect.

Each function names what it undoes. They change modules of this interpreter: nothing puts them back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import tidegate.control.manager as manager
import tidegate.control.observe as observe
import tidegate.control.ownership as ownership
import tidegate.kafka.claim as claims
import tidegate.kafka.zookeeper.store as store
import tidegate.kube.lease as lease
import tidegate_logic.decide as decide
from tests.simulation import process
from tidegate.kafka.quota_store import Claim
from tidegate.kube import api
from tidegate_logic.contracts.desired import Desired
from tidegate_logic.model import DeletionPolicy
from tidegate_logic.quotas import plan
from tidegate_logic.quotas.budget import RemovalMemory


def a1_budget() -> None:
    """Undoes `free` in `deletion_plan` (quotas/plan.py): giving back is charged to the budget."""
    fixed = plan.deletion_plan

    def deletion_plan(ours, quotas, *, policy, **rest):  # type: ignore[no-untyped-def]
        if policy.deletion_policy is DeletionPolicy.RETAIN:
            return fixed(ours, quotas, policy=policy, **rest)
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

    def next_claim(
        current: Claim | None, wanted: Claim, replaces: str, *, renews: bool = False
    ) -> Claim:
        if current is not None and current.policy_key == wanted.policy_key:
            is_same = current.policy_uid == wanted.policy_uid
            return current if is_same else replace(wanted, epoch=current.epoch)
        return fixed(current, wanted, replaces, renews=renews)

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
    plan._recent = lambda memory, _: RemovalMemory(  # type: ignore[attr-defined]
        confirmed=memory.confirmed, used=memory.used
    )


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
}
