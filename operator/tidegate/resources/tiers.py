"""The specs of BusinessTier and QuotaOverride.

The operator, not the schema, checks what needs other objects: whether the policy and the topics
exist, and whether a user or client id is in another tier. It also finds the same user and client id
twice in one tier, which would cost too much in CEL.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from tidegate.resources.access import NamespaceName
from tidegate.resources.calendar import Recurring
from tidegate.resources.fields import (
    KafkaName,
    Labels,
    MemberName,
    Moment,
    ObjectName,
    PolicyRef,
    RackName,
    Sentence,
    TopicPattern,
    parse_moment,
)
from tidegate.resources.rates import (
    IN_ONE_FORM,
    PER_BROKER,
    PER_PARTITION,
    TOTAL,
    ContractRates,
    DirectionRates,
    ThrottledRates,
    cel_at_most,
)
from tidegate.resources.schema import Rule, SchemaModel

TierLevel = Literal["L0", "L1", "L2", "L3"]
ShareGroups = Literal["Protect", "Throttle"]

MAX_MEMBERS = 500
MAX_TOPICS = 100
MAX_SHARE_GROUPS = 100
# no rule for every name of every member, which would cost the API server too much
GroupPattern = Annotated[str, Field(min_length=1, max_length=249)]
MAX_RACKS = 16


class TierMember(SchemaModel):
    """A Kafka user, a client id, or both, with its contract."""

    name: MemberName = Field(
        description="Name of the member within the tier; it appears in status, events and metrics."
    )
    user: KafkaName | None = Field(
        default=None,
        description="Principal as Kafka sees it, without 'User:'. Clients without a login are "
        "ANONYMOUS.",
    )
    client_id: KafkaName | None = Field(
        default=None, description="Client id as the client sends it."
    )
    topics: tuple[TopicPattern, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_TOPICS,
        description="Topics by name, or by a prefix ending in *. Their partition leaders scale "
        "the contract.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    racks: tuple[RackName, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_RACKS,
        description="Racks of its consumers, as in their client.rack. Where brokers let consumers "
        "read from followers (replica.selector.class), the fetch contract is scaled by the "
        "replicas in these racks. Unset means that measured reads scale it.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    contract: ContractRates | None = Field(
        default=None,
        description="What the member is promised. Unset means unlimited except while the tier "
        "is throttled.",
    )
    labels: Labels | None = Field(
        default=None,
        description="Who to bill, such as team or costCenter, in usage tables and reports. "
        "Takes precedence over the tier's label of the same name.",
    )
    share_groups: ShareGroups | None = Field(
        default=None,
        description="While a share group uses this member. Protect (the default): no fetch "
        "quota, because a throttled share group loses records. Throttle: the quota stays, and "
        "one change delays its clients for at most a third of the group's record lock.",
    )
    share_group_names: tuple[GroupPattern, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_SHARE_GROUPS,
        description="Share groups that the member's clients use, by name or by a prefix ending in "
        "*. Needed for a member without a clientId: Kafka does not report a group's users.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
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
            message="topics are required with a contract perPartition: its rate is multiplied by "
            "their partitions",
            reason="FieldValueRequired",
            field_path=".topics",
            holds=lambda member: (
                member.contract is None
                or member.contract.per_partition is None
                or member.topics is not None
            ),
        ),
        Rule(
            cel="",
            message="every topic may appear once only",
            field_path=".topics",
            holds=lambda member: (
                member.topics is None or len(set(member.topics)) == len(member.topics)
            ),
        ),
        Rule(
            cel="!has(self.racks) || has(self.topics)",
            message="topics are required with racks: the replicas of their partitions are counted",
            reason="FieldValueRequired",
            field_path=".topics",
            holds=lambda member: member.racks is None or member.topics is not None,
        ),
        Rule(
            cel="",
            message="every rack may appear once only",
            field_path=".racks",
            holds=lambda member: (
                member.racks is None or len(set(member.racks)) == len(member.racks)
            ),
        ),
    )


def _throttled_rule(form: str, direction: str) -> Rule:
    """The rule that one throttled rate is not above the same rate of any member's contract."""
    throttled, contract = (
        f"self.throttledRates.{form}.{direction}",
        f"m.contract.{form}.{direction}",
    )
    given = f"has(self.throttledRates) && has(self.throttledRates.{form}) && has({throttled})"
    compared = f"has(m.contract) && has(m.contract.{form}) && has({contract})"
    fits = f"(!({compared}) || {cel_at_most(throttled, contract)})"
    attribute = {"perPartition": "per_partition", "perBroker": "per_broker", "total": "total"}[form]

    def holds(spec: Any) -> bool:
        limit = _rate(spec.throttled_rates, attribute, direction)
        return limit is None or all(
            (_rate(member.contract, attribute, direction) or limit) >= limit
            for member in spec.members
        )

    return Rule(
        cel=f"!({given}) || self.members.all(m, {fits})",
        message=f"throttledRates.{form}.{direction} must not be above the contract of any member",
        message_cel=(
            f"'throttledRates.{form}.{direction} must not be above the contract, but it is for "
            f"member ' + self.members[self.members.map(m, {fits}).indexOf(false)].name"
        ),
        field_path=".throttledRates",
        holds=holds,
    )


def _rate(rates: Any, form: str, direction: str) -> int | None:
    pair = None if rates is None else getattr(rates, form)
    rate: int | None = None if pair is None else getattr(pair, direction)
    return rate


class TierPolicyRef(SchemaModel):
    """A policy, in the same namespace or in another one that lets this tier in."""

    name: ObjectName = Field(description="Name of a BrokerBandwidthPolicy.")
    namespace: NamespaceName | None = Field(
        default=None,
        description="Its namespace; a policy in another namespace must admit the tier "
        "(spec.allowedTiers). Unset means that of this object.",
    )


class TierSpec(SchemaModel):
    """The desired state of one group of businesses."""

    policy_ref: TierPolicyRef = Field(
        description="The policy, and so the Kafka cluster, that this tier belongs to. It may be "
        "created later."
    )
    level: TierLevel = Field(
        description="How important the tier is. L3 is throttled first, then L2, then L1; L0 is "
        "never throttled below its contract. Tiers of the same level act together."
    )
    throttled_rates: ThrottledRates | None = Field(
        default=None,
        description="The rates that members are throttled down to while a broker is over its "
        "limit. Required on L1, L2 and L3, refused on L0.",
    )
    members: tuple[TierMember, ...] = Field(
        min_length=1,
        max_length=MAX_MEMBERS,
        description="The members of the tier. A pair of user and client id may appear only "
        "once in all tiers of a policy.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    labels: Labels | None = Field(
        default=None,
        description="Who to bill for all members, such as team or costCenter, in usage tables "
        "and reports. Labels change no quota.",
    )

    rules = (
        Rule(
            cel="self.level != 'L0' || !has(self.throttledRates)",
            message="throttledRates must be left out on level L0, which is never throttled below "
            "its contract",
            reason="FieldValueForbidden",
            field_path=".throttledRates",
            holds=lambda spec: spec.level != "L0" or spec.throttled_rates is None,
        ),
        Rule(
            cel="self.level == 'L0' || has(self.throttledRates)",
            message="throttledRates are required on levels L1, L2 and L3: the members drop to them",
            reason="FieldValueRequired",
            field_path=".throttledRates",
            holds=lambda spec: spec.level == "L0" or spec.throttled_rates is not None,
        ),
        *(
            _throttled_rule(form, direction)
            for form in ("perPartition", "perBroker", "total")
            for direction in ("fetch", "produce")
        ),
        Rule(
            cel="",
            message="every member needs a name of its own",
            field_path=".members",
            holds=lambda spec: len({member.name for member in spec.members}) == len(spec.members),
        ),
    )


# The spec of QuotaOverride: a person's decision about one client or one level, which ends by
# itself.
#
# At admission there is no clock and, of the metadata, only the name. So a rule can only check that
# the end is a time. The operator checks that it is at most 30 days (for one that comes back, 366
# days) after the object was made, from the two times in the object. It also checks that the policy
# and the member exist, and that the rates fit the member's contract.


OverrideAction = Literal["SetRates", "Exempt"]

MAX_DAYS_AHEAD = 30
MAX_RECURRING_DAYS = 366


class OverrideRates(SchemaModel):
    """Byte rates instead of a contract's, in exactly one form."""

    per_partition: DirectionRates | None = Field(
        default=None, description=f"{PER_PARTITION} Members without topics cannot have it."
    )
    per_broker: DirectionRates | None = Field(default=None, description=PER_BROKER)
    total: DirectionRates | None = Field(default=None, description=TOTAL)

    rules = (IN_ONE_FORM,)


class OverrideTarget(SchemaModel):
    """Whom an override is for: one member, or every member of a level."""

    user: KafkaName | None = Field(
        default=None,
        description="User of the member. User and clientId must be exactly those of a member of a "
        "BusinessTier.",
    )
    client_id: KafkaName | None = Field(default=None, description="Client id of the member.")
    level: TierLevel | None = Field(
        default=None,
        description="Instead of one member: every member of every tier at this level. An "
        "override for a single member takes precedence.",
    )

    rules = (
        Rule(
            cel="has(self.level) != (has(self.user) || has(self.clientId))",
            message="must have either a level, or a user, a clientId or both",
            holds=lambda target: (
                (target.level is not None)
                != (target.user is not None or target.client_id is not None)
            ),
        ),
    )


class OverrideRecurrence(Recurring):
    """Times that come back every week, until a day."""

    until: Moment = Field(
        description="When the override ends for good, such as 2027-03-31T22:00:00Z: at most "
        f"{MAX_RECURRING_DAYS} days after the object was created."
    )


class OverrideSpec(SchemaModel):
    """A temporary exception: for whom, from when until when, and why."""

    policy_ref: PolicyRef = Field(
        description="The policy, and so the Kafka cluster, that this applies to. It may be "
        "created later."
    )
    target: OverrideTarget = Field(description="The member or level that it applies to.")
    action: OverrideAction = Field(
        description="SetRates: rates replace the contract's, and the member is never throttled "
        "below them. Exempt: the contract stays, and the member is never throttled "
        "below it."
    )
    rates: OverrideRates | None = Field(
        default=None,
        description="With action SetRates: byte rates that replace the contract's; for a "
        "level, each member gets them. A direction that is omitted keeps its "
        "contract; to set only one direction, use the contract's own form.",
    )
    starts_at: Moment | None = Field(
        default=None,
        description="When the override begins, such as 2026-11-29T22:00:00Z. Unset means when it "
        "is created.",
    )
    expires_at: Moment | None = Field(
        default=None,
        description="When the override ends, such as 2026-11-30T06:00:00Z: at most "
        f"{MAX_DAYS_AHEAD} days after the object was created. For longer, create another one, or "
        "set recurrence instead.",
    )
    recurrence: OverrideRecurrence | None = Field(
        default=None,
        description="Instead of expiresAt: times that come back every week. Between them, the "
        "contract applies.",
    )
    reason: Sentence = Field(
        description="Why, for anyone who reads it later: in status, explain and Events."
    )

    rules = (
        Rule(
            cel="self.action != 'SetRates' || has(self.rates)",
            message="rates are required with action SetRates",
            reason="FieldValueRequired",
            field_path=".rates",
            holds=lambda spec: spec.action != "SetRates" or spec.rates is not None,
        ),
        Rule(
            cel="self.action == 'SetRates' || !has(self.rates)",
            message="rates must be left out with action Exempt, which keeps those of the contract",
            reason="FieldValueForbidden",
            field_path=".rates",
            holds=lambda spec: spec.action == "SetRates" or spec.rates is None,
        ),
        Rule(
            cel="self.action != 'Exempt' || !has(self.target.level) || self.target.level != 'L0'",
            message="action must not be Exempt for level L0, which is never throttled anyway",
            reason="FieldValueForbidden",
            field_path=".action",
            holds=lambda spec: spec.action != "Exempt" or spec.target.level != "L0",
        ),
        Rule(
            cel="has(self.expiresAt) || has(self.recurrence)",
            message="must have exactly one of expiresAt and recurrence",
            reason="FieldValueRequired",
            field_path=".expiresAt",
            holds=lambda spec: spec.expires_at is not None or spec.recurrence is not None,
        ),
        Rule(
            cel="!has(self.expiresAt) || !has(self.recurrence)",
            message="must have exactly one of expiresAt and recurrence, whose end is until",
            reason="FieldValueForbidden",
            field_path=".recurrence",
            holds=lambda spec: spec.expires_at is None or spec.recurrence is None,
        ),
        *(
            Rule(
                cel=f"!has(self.startsAt) || !has(self.{field}) || "
                f"timestamp(self.startsAt) < timestamp(self.{end})",
                message=f"startsAt must be before {end}",
                field_path=".startsAt",
                holds=holds,
            )
            for field, end, holds in (
                (
                    "expiresAt",
                    "expiresAt",
                    lambda spec: _starts_before(spec, spec.expires_at),
                ),
                (
                    "recurrence",
                    "recurrence.until",
                    lambda spec: _starts_before(spec, spec.recurrence and spec.recurrence.until),
                ),
            )
        ),
    )

    @property
    def ends_at(self) -> str:
        """When it ends for good, as it was written."""
        return self.expires_at or (self.recurrence.until if self.recurrence else "")


def _starts_before(spec: Any, end: str | None) -> bool:
    begin = spec.starts_at
    return begin is None or end is None or parse_moment(begin) < parse_moment(end)
