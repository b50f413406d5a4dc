"""The parts of a policy that say how fast quotas may move: scaling by leaders, escalation, and the write budget."""

from typing import Annotated, Literal

from pydantic import Field

from tidegate.resources.rules import Rule
from tidegate.resources.schema import SchemaModel

ScalingMethod = Literal["Max", "Mean", "Min", "Adaptive"]
EscalationSpeed = Literal["Ladder", "Drain"]
Percent = Annotated[int, Field(ge=0, le=100)]
PercentOfLimit = Annotated[int, Field(ge=50, le=100)]


class LeaderScaling(SchemaModel):
    """How a contract becomes one number for all brokers, when they lead unequally many partitions."""

    method: ScalingMethod | None = Field(
        default=None,
        description="What to do where leaders are uneven; a native quota is one number for all brokers. "
        "Max: no partition gets less than promised, the total may exceed the contract. Mean: the total is the contract, "
        "partitions on crowded brokers get less. Min: no broker allows more than promised. "
        "Adaptive: between Mean and Max by measured rates, so that the total is the contract for greedy clients and for even demand; "
        "without metrics it stays at Max. Unset means Max.",
    )
    minimum_change_percent: Percent | None = Field(
        default=None, description="Leader moves that change a quota by less than this are not written. Unset means 10."
    )

    @property
    def method_or_default(self) -> ScalingMethod:
        """The method; Max where unset."""
        return self.method or "Max"

    @property
    def minimum_change_percent_or_default(self) -> int:
        """The smallest change worth a write, in percent; 10 where unset."""
        return 10 if self.minimum_change_percent is None else self.minimum_change_percent


class Escalation(SchemaModel):
    """How tiers are throttled and released while a broker is over its limit."""

    speed: EscalationSpeed | None = Field(
        default=None,
        description="Ladder: several bounded steps, each mute within maxMuteSeconds. "
        "Drain: two writes and one longer silence where readings allow it, else the ladder. Unset means Ladder.",
    )
    max_mute_seconds: Annotated[int, Field(ge=2, le=120)] | None = Field(
        default=None,
        description="Longest silence that one lowering may cause for a client, whatever its cause. "
        "Clients give up on a request after 30 s by default. Unset means 12.",
    )
    aim_percent: PercentOfLimit | None = Field(
        default=None, description="Where a cut aims, in percent of the broker's limit. Unset means 97."
    )
    raise_to_percent: PercentOfLimit | None = Field(
        default=None, description="How far raises may fill the broker's limit, in percent; not above aimPercent. Unset means 95."
    )
    hold_seconds: Annotated[int, Field(ge=1, le=480)] | None = Field(
        default=None, description="How long brokers must stay within their limits before quotas are raised again. Unset means 45."
    )

    rules = (
        Rule(
            cel="(has(self.raiseToPercent) ? self.raiseToPercent : 95) <= (has(self.aimPercent) ? self.aimPercent : 97)",
            message="raiseToPercent (95 where unset) must not be above aimPercent (97 where unset): every raise would be cut again",
            holds=lambda escalation: escalation.raise_to_percent_or_default <= escalation.aim_percent_or_default,
        ),
    )

    @property
    def speed_or_default(self) -> EscalationSpeed:
        """The speed; Ladder where unset."""
        return self.speed or "Ladder"

    @property
    def max_mute_seconds_or_default(self) -> int:
        """The longest mute that one lowering may cause; 12 s where unset."""
        return 12 if self.max_mute_seconds is None else self.max_mute_seconds

    @property
    def aim_percent_or_default(self) -> int:
        """Where a cut aims, in percent of the limit; 97 where unset."""
        return 97 if self.aim_percent is None else self.aim_percent

    @property
    def raise_to_percent_or_default(self) -> int:
        """How far raises fill the limit, in percent; 95 where unset."""
        return 95 if self.raise_to_percent is None else self.raise_to_percent

    @property
    def hold_seconds_or_default(self) -> int:
        """How long to wait before raising; 45 s where unset."""
        return 45 if self.hold_seconds is None else self.hold_seconds


class WriteBudget(SchemaModel):
    """How many quota changes Kafka is asked to digest."""

    notifications_per_quarter_hour: Annotated[int, Field(ge=10, le=100_000)] | None = Field(
        default=None, description="Entities that may be changed within 15 minutes; every broker reads each change. Unset means 300."
    )

    @property
    def notifications_per_quarter_hour_or_default(self) -> int:
        """The budget; 300 entities in 15 minutes where unset."""
        return 300 if self.notifications_per_quarter_hour is None else self.notifications_per_quarter_hour


class Removal(SchemaModel):
    """How many quotas may be given back at once without a person's word."""

    max_percent_per_pass: Annotated[int, Field(ge=1, le=100)] | None = Field(
        default=None,
        description="Giving back more than this share of all managed quotas at once is held (reason RemovalHeld) until the annotation "
        "tidegate.io/confirm-removal names the count. Unset means 50; 100 never holds.",
    )

    @property
    def max_percent_per_pass_or_default(self) -> int:
        """The share in percent; 50 where unset."""
        return 50 if self.max_percent_per_pass is None else self.max_percent_per_pass
