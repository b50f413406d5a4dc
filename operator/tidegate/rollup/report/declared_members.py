"""What the report says of members beside their usage: their names and contracts, and the contracts that usage recommends.

Recommendations are computed by the operator's own rule on the figures of the report's own period, so they may differ from those in a
tier's status, which rest on other days.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from controller_logic.contracts.recommend import AdviceBasis, advise
from controller_logic.model import Advice, Policy, RateForm, Topology, Usage
from tidegate.rollup.report.request import ClientKey, MemberTerms, RecommendedContract
from tidegate.rollup.schemas import Direction
from tidegate.rollup.terms.policy import KEYS, PolicyMember, PolicyTerms

_DIRECTIONS: Final[Mapping[str, Direction]] = {key.value: direction for direction, key in KEYS.items()}
_FORMS: Final = {RateForm.PER_BROKER: "on each broker", RateForm.TOTAL: "of all brokers", RateForm.PER_PARTITION: "a partition"}


def member_terms(terms: PolicyTerms, *, brokers: int) -> Sequence[MemberTerms]:
    """Everybody of the policy; a contract whose rate on each broker is not known without leaders is left out."""
    return [
        MemberTerms(
            client=_client(one),
            name=one.member.name,
            level=one.tier.level.value,
            contracts={direction: round(rate) for direction, rate in terms.promised(one, brokers=brokers).items()},
        )
        for one in terms.members
    ]


def recommendations(policy: Policy, terms: PolicyTerms, usage: Usage, brokers: Collection[int]) -> Sequence[RecommendedContract]:
    """One for each byte rate of each contract. Leaders are not known here, so a rate for each partition gets none, and a reason."""
    topology = Topology(usage.until_seconds, frozenset(brokers), {})
    advised = advise(AdviceBasis(usage, tuple(terms.tiers), policy.advice, policy.limits, topology))
    return [each for one in terms.members for each in _told(one, advised.advice.get((one.tier.key, one.member.name), ()), usage)]


def _told(one: PolicyMember, advice: Sequence[Advice], usage: Usage) -> Iterator[RecommendedContract]:
    form = _FORMS[one.member.contract.form] if one.member.contract is not None else ""
    for each in advice:
        figures = usage.figures.get((one.member.entity, each.key))
        yield RecommendedContract(
            client=_client(one),
            direction=_DIRECTIONS[each.key.value],
            contract=each.declared,
            recommended=each.recommended,
            reason=each.reason.value,
            message=each.message,
            form=form,
            applied=each.applied,
            p99_rate=None if figures is None else figures.p99_busiest,
        )


def _client(one: PolicyMember) -> ClientKey:
    return ClientKey(one.tier.key, *one.client)
