"""The spec of BusinessTier: who is how important, what they are promised, what they drop to.

What needs another object is not decided here: whether the policy and the topics exist, and whether a user or client id
appears in another tier. The same user and client id twice in one tier is too dear for CEL and is found by the operator too.
"""

from typing import Any, Literal

from pydantic import Field

from tidegate.resources.byte_rate import cel_at_most
from tidegate.resources.fields import KafkaName, MemberName, PolicyRef, TopicPattern
from tidegate.resources.rates import ContractRates, ThrottledRates
from tidegate.resources.rules import Rule
from tidegate.resources.schema import SchemaModel

TierLevel = Literal["L0", "L1", "L2", "L3"]

MAX_MEMBERS = 500
MAX_TOPICS = 100


class TierMember(SchemaModel):
    """One user, client id, or pair of both, with its promise."""

    name: MemberName = Field(description="Name of the member within the tier; it appears in status, events and metrics.")
    user: KafkaName | None = Field(
        default=None, description="Principal name as Kafka sees it, without 'User:'. Clients without a login are ANONYMOUS."
    )
    client_id: KafkaName | None = Field(default=None, description="Client id as the client sends it.")
    topics: tuple[TopicPattern, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_TOPICS,
        description="Topics by name, or by a prefix ending in *. Their partition leaders scale the contract.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    contract: ContractRates | None = Field(
        default=None,
        description="What the member is promised. Unset means unlimited until the tier is throttled, and unlimited again after.",
    )

    rules = (
        Rule(
            cel="has(self.user) || has(self.clientId)",
            message="must have a user, a clientId or both",
            reason="FieldValueRequired",
            holds=lambda member: member.user is not None or member.client_id is not None,
        ),
        Rule(
            cel="!has(self.contract) || !has(self.contract.perPartition) || has(self.topics)",
            message="topics are required with a contract perPartition: its rate is multiplied by their partitions",
            reason="FieldValueRequired",
            field_path=".topics",
            holds=lambda member: member.contract is None or member.contract.per_partition is None or member.topics is not None,
        ),
        Rule(
            cel="",
            message="every topic may appear once only",
            field_path=".topics",
            holds=lambda member: member.topics is None or len(set(member.topics)) == len(member.topics),
        ),
    )


def _throttled_rule(form: str, direction: str) -> Rule:
    """The rule that one throttled rate is not above the same rate of any member's contract."""
    throttled, contract = f"self.throttled.{form}.{direction}", f"m.contract.{form}.{direction}"
    given = f"has(self.throttled) && has(self.throttled.{form}) && has({throttled})"
    compared = f"has(m.contract) && has(m.contract.{form}) && has({contract})"
    fits = f"(!({compared}) || {cel_at_most(throttled, contract)})"
    attribute = {"perPartition": "per_partition", "perBroker": "per_broker", "total": "total"}[form]

    def holds(spec: Any) -> bool:
        limit = _rate(spec.throttled, attribute, direction)
        return limit is None or all((_rate(member.contract, attribute, direction) or limit) >= limit for member in spec.members)

    return Rule(
        cel=f"!({given}) || self.members.all(m, {fits})",
        message=f"throttled.{form}.{direction} must not be above the contract of any member",
        message_cel=(
            f"'throttled.{form}.{direction} must not be above the contract, but it is for member ' + "
            f"self.members[self.members.map(m, {fits}).indexOf(false)].name"
        ),
        field_path=".throttled",
        holds=holds,
    )


def _rate(rates: Any, form: str, direction: str) -> int | None:
    pair = None if rates is None else getattr(rates, form)
    rate: int | None = None if pair is None else getattr(pair, direction)
    return rate


class TierSpec(SchemaModel):
    """What a person wants for one group of businesses."""

    policy_ref: PolicyRef = Field(description="The policy, and so the Kafka cluster, that this tier belongs to. It may be created later.")
    level: TierLevel = Field(
        description="How important the tier is. L3 is throttled first, then L2, then L1; L0 is never throttled below its contract. "
        "Tiers of the same level act together."
    )
    throttled: ThrottledRates | None = Field(
        default=None,
        description="What members drop to while a broker is over its limit. Required on L1, L2 and L3, refused on L0.",
    )
    members: tuple[TierMember, ...] = Field(
        min_length=1,
        max_length=MAX_MEMBERS,
        description="Who belongs to the tier. A user and client id may appear once in all tiers of a policy.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )

    rules = (
        Rule(
            cel="self.level != 'L0' || !has(self.throttled)",
            message="throttled must be left out on level L0, which is never throttled below its contract",
            reason="FieldValueForbidden",
            field_path=".throttled",
            holds=lambda spec: spec.level != "L0" or spec.throttled is None,
        ),
        Rule(
            cel="self.level == 'L0' || has(self.throttled)",
            message="throttled is required on levels L1, L2 and L3: it says what the members drop to",
            reason="FieldValueRequired",
            field_path=".throttled",
            holds=lambda spec: spec.level == "L0" or spec.throttled is not None,
        ),
        *(_throttled_rule(form, direction) for form in ("perPartition", "perBroker", "total") for direction in ("fetch", "produce")),
        Rule(
            cel="",
            message="every member needs a name of its own",
            field_path=".members",
            holds=lambda spec: len({member.name for member in spec.members}) == len(spec.members),
        ),
    )
