"""The spec of QuotaOverride: a human's decision about one client or one level, which ends by itself.

Admission sees no clock and, of the metadata, only the name. So what it can say of the end is that it is a time; that it is at most
30 days after the object was made is said by the operator, from the two times in the object and not from its own clock. Whether the policy
and a member exist, and whether the rates fit the member's contract, needs other objects and is said by the operator too.
"""

from pydantic import Field

from tidegate.resources.fields import KafkaName, PolicyRef, Sentence
from tidegate.resources.moment import Moment
from tidegate.resources.rates import IN_ONE_FORM, PER_BROKER, PER_PARTITION, TOTAL, DirectionRates
from tidegate.resources.rules import Rule
from tidegate.resources.schema import SchemaModel
from tidegate.resources.tiers import TierLevel

MAX_DAYS_AHEAD = 30


class OverrideRates(SchemaModel):
    """Byte rates in place of a contract's, in exactly one form."""

    per_partition: DirectionRates | None = Field(default=None, description=f"{PER_PARTITION} Members without topics cannot have it.")
    per_broker: DirectionRates | None = Field(default=None, description=PER_BROKER)
    total: DirectionRates | None = Field(default=None, description=TOTAL)

    rules = (IN_ONE_FORM,)


class OverrideSpec(SchemaModel):
    """What a person decided, for whom, until when and why."""

    policy_ref: PolicyRef = Field(description="The policy, and so the Kafka cluster, that this is about. It may be created later.")
    user: KafkaName | None = Field(
        default=None,
        description="User of the member that this is for. User and clientId must be exactly those of a member of a BusinessTier.",
    )
    client_id: KafkaName | None = Field(default=None, description="Client id of the member that this is for.")
    level: TierLevel | None = Field(
        default=None,
        description="Instead of one member: every member of every tier of this level. What is said of a single member goes before it.",
    )
    rates: OverrideRates | None = Field(
        default=None,
        alias="set",
        description="Byte rates in place of those of the contract: for a level, each member gets them. A direction that is not named stays "
        "as the contract has it, so one alone must be in the form of the contract. Nobody is throttled below them while they last.",
    )
    exempt: bool | None = Field(
        default=None, description="true: the contract stays, and nobody is throttled below it while this lasts. Instead of set."
    )
    expires_at: Moment = Field(
        description=f"When it ends by itself, such as 2026-11-30T06:00:00Z: at most {MAX_DAYS_AHEAD} days after the object was made. "
        "To go on for longer, make another one."
    )
    reason: Sentence = Field(description="Why, for whoever reads it later: in status, explain and events.")

    rules = (
        Rule(
            cel="has(self.level) != (has(self.user) || has(self.clientId))",
            message="must have either a level, or a user, a clientId or both",
            holds=lambda spec: (spec.level is not None) != (spec.user is not None or spec.client_id is not None),
        ),
        Rule(
            cel="has(self.set) != has(self.exempt)",
            message="must have exactly one of set and exempt",
            holds=lambda spec: (spec.rates is not None) != (spec.exempt is not None),
        ),
        Rule(
            cel="!has(self.exempt) || self.exempt",
            message="exempt must be true or left out",
            field_path=".exempt",
            holds=lambda spec: spec.exempt is not False,
        ),
        Rule(
            cel="!has(self.exempt) || !has(self.level) || self.level != 'L0'",
            message="exempt must be left out on level L0, which is never throttled anyway",
            reason="FieldValueForbidden",
            field_path=".exempt",
            holds=lambda spec: spec.exempt is None or spec.level != "L0",
        ),
    )
