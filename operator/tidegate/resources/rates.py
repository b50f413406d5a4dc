"""Rates of a contract or a throttle: one pair of directions, in one of three forms."""

from pydantic import Field

from tidegate.resources.byte_rate import ByteRate
from tidegate.resources.quota_defaults import MutationsPerSecond, RequestPercentage
from tidegate.resources.rules import Rule
from tidegate.resources.schema import SchemaModel


class DirectionRates(SchemaModel):
    """Bytes per second in each direction; a direction that is left out is not managed."""

    fetch: ByteRate | None = Field(default=None, description="Bytes per second that may be fetched, such as 10Mi. Unset means not managed.")
    produce: ByteRate | None = Field(
        default=None, description="Bytes per second that may be produced, such as 10Mi. Unset means not managed."
    )

    rules = (
        Rule(
            cel="has(self.fetch) || has(self.produce)",
            message="must have at least one of fetch and produce",
            holds=lambda rates: rates.fetch is not None or rates.produce is not None,
        ),
    )


PER_PARTITION = (
    "Rate for each partition of the topics; a broker allows it times the partitions it leads, so that the total survives a broker's death."
)
PER_BROKER = "Rate on each broker, written as it is."
TOTAL = "Rate over the whole cluster, divided over the brokers that lead the topics."

IN_ONE_FORM = Rule(
    cel="[has(self.perPartition), has(self.perBroker), has(self.total)].filter(given, given).size() == 1",
    message="must have exactly one of perPartition, perBroker and total",
    holds=lambda rates: [rates.per_partition, rates.per_broker, rates.total].count(None) == 2,
)


class ContractRates(SchemaModel):
    """What a member is promised, in exactly one form."""

    per_partition: DirectionRates | None = Field(default=None, description=f"{PER_PARTITION} The member needs topics.")
    per_broker: DirectionRates | None = Field(default=None, description=PER_BROKER)
    total: DirectionRates | None = Field(default=None, description=TOTAL)
    request_percentage: RequestPercentage | None = Field(
        default=None,
        description="Share of one broker thread's time in percent, on each broker; 200 means two threads. Unset means not managed.",
    )
    controller_mutations_per_second: MutationsPerSecond | None = Field(
        default=None, description="Partitions created, deleted or altered per second, on each broker. Unset means not managed."
    )

    rules = (IN_ONE_FORM,)


class ThrottledRates(SchemaModel):
    """What the members of a tier drop to, in each form that their contracts use."""

    per_partition: DirectionRates | None = Field(default=None, description=f"For members with a contract perPartition. {PER_PARTITION}")
    per_broker: DirectionRates | None = Field(default=None, description=f"For members with a contract perBroker. {PER_BROKER}")
    total: DirectionRates | None = Field(default=None, description=f"For members with a contract total. {TOTAL}")

    rules = (
        Rule(
            cel="has(self.perPartition) || has(self.perBroker) || has(self.total)",
            message="must have at least one of perPartition, perBroker and total",
            holds=lambda rates: [rates.per_partition, rates.per_broker, rates.total].count(None) < 3,
        ),
    )
