"""What `tidegate doctor` finds about BandwidthBudgets: rights, missing policies, members."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tidegate.commands.findings import Finding, ok, problem, warning
from tidegate.errors import NotFound, TidegateError, Unauthorized
from tidegate.kube.api import BANDWIDTH_BUDGETS, BROKER_BANDWIDTH_POLICIES
from tidegate.observe.declared import object_key, policy_name_of
from tidegate_logic.reasons import Reason
from tidegate_logic.words import counted

if TYPE_CHECKING:  # most commands do without a login
    from tidegate.commands.inputs import PolicySource
    from tidegate.kube.login import Login

_CHECK = "budgets"
_VERBS = (("", "get"), ("", "list"), ("", "watch"), ("/status", "patch"))


def examine_budget_rights(
    login: Login, source: PolicySource | None, *, namespace: str
) -> Iterator[Finding]:
    """Whether the right to read them is there where their CRD is.

    Without the CRD there are none; with it and without the right, what is there is not known.
    """
    from tidegate.kube.login import Right

    kind = BANDWIDTH_BUDGETS
    if kind.plural not in login.served(kind.group, kind.version):
        return
    rights = [Right(kind.group, f"{kind.plural}{part}", verb, namespace) for part, verb in _VERBS]
    missing = [str(right) for right in rights if not login.may(right)]
    if not missing:
        return
    what = f"BandwidthBudget is served, but this login may not: {', '.join(missing)}."
    to_do = "Grant them: examples/rights/operator.yaml has exactly the rights that are needed."
    if source is not None and source.status.get("budgets"):
        so_what = "An operator with this login changes no quota of this policy, which has budgets."
        yield problem(_CHECK, Reason.BUDGETS_UNREAD, what, so_what, to_do)
    else:
        so_what = "An operator with this login divides no budget."
        yield warning(_CHECK, Reason.NOT_AUTHORIZED, what, so_what, to_do)


def examine_budgets(source: PolicySource) -> Iterator[Finding]:
    """The budgets of the policy, and those of its namespace whose policy does not exist."""
    yield from _without_policy(source)
    declared = source.declared
    budgets = declared.budgets or ()
    parents = {one.parent for one in budgets}
    empty = [
        one
        for one in budgets
        if one.key not in parents
        and not any(
            one.names(tier, member) for tier in declared.tiers or () for member in tier.members
        )
    ]
    for one in empty if declared.tiers is not None and not declared.broken else ():
        yield warning(
            _CHECK,
            Reason.NO_SUCH_MEMBER,
            f"No member of the policy's tiers is in budget {one.key}.",
            "It limits nobody.",
            "Correct spec.members: tiers by their names in the same namespace, labels by "
            "spec.labels of tiers and their members.",
        )
    if budgets and not empty:
        yield ok(_CHECK, f"{counted(len(budgets), 'budget')} with members.")


def _without_policy(source: PolicySource) -> Iterator[Finding]:
    kubernetes, namespace = source.kubernetes, source.declared.policy.key.partition("/")[0]
    if kubernetes is None:
        return
    try:
        budgets = kubernetes.list_all(BANDWIDTH_BUDGETS, (namespace,))
        policies = kubernetes.list_all(BROKER_BANDWIDTH_POLICIES, (namespace,))
    except (NotFound, Unauthorized):
        return  # there are none, or there is a finding about the right
    except TidegateError as error:
        yield warning(
            _CHECK, error.reason, f"Not examined: {error.for_command}", "", "Try again later."
        )
        return
    known = {object_key(raw) for raw in policies}
    for raw in budgets:
        named = policy_name_of(raw)
        if named and named not in known:
            yield warning(
                _CHECK,
                Reason.POLICY_NOT_FOUND,
                f"Budget {object_key(raw)} is for policy {named}, which does not exist in its "
                "namespace.",
                "It limits nobody.",
                "Correct spec.policyRef, or create the policy.",
            )
