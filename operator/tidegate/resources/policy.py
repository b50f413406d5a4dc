"""The spec of BrokerBandwidthPolicy: one Kafka cluster and the bandwidth of its brokers."""

from typing import Literal

from pydantic import Field

from tidegate.resources.broker_limits import BrokerLimits
from tidegate.resources.kafka_cluster import KafkaCluster
from tidegate.resources.metrics_source import MetricsSource
from tidegate.resources.quota_defaults import QuotaDefaults
from tidegate.resources.rollup import Rollup
from tidegate.resources.rules import Rule
from tidegate.resources.schema import SchemaModel
from tidegate.resources.throttling import Escalation, LeaderScaling, Removal, WriteBudget

PolicyMode = Literal["Observe", "Enforce"]
DeletionPolicy = Literal["Restore", "Keep"]


class PolicySpec(SchemaModel):
    """What a person wants of one Kafka cluster."""

    mode: PolicyMode = Field(
        description="Observe: decide, publish and audit, but write nothing to Kafka. Enforce: act. There is no default; choose."
    )
    kafka: KafkaCluster = Field(description="The Kafka cluster. One policy per cluster, told apart by cluster id.")
    metrics: MetricsSource | None = Field(
        default=None,
        description="Where load is measured. Unset means that contracts follow the leaders and no tier is ever throttled.",
    )
    brokers: BrokerLimits | None = Field(
        default=None,
        description="Limits of each single broker. Unset means that no broker is ever over its limit.",
    )
    leader_scaling: LeaderScaling | None = Field(
        default=None, description="How contracts follow partition leaders. Unset means the defaults of its fields."
    )
    escalation: Escalation | None = Field(
        default=None,
        description="How tiers are throttled and released while a broker is over its limit. Unset means the defaults of its fields.",
    )
    defaults: QuotaDefaults | None = Field(
        default=None, description="Quotas of Kafka's default entities, on each broker. Unset means not managed."
    )
    write_budget: WriteBudget | None = Field(
        default=None, description="How many quota changes Kafka is asked to digest. Unset means the defaults of its fields."
    )
    removal: Removal | None = Field(
        default=None,
        description="How many quotas may be given back at once without a person's word. Unset means the defaults of its fields.",
    )
    deletion: DeletionPolicy | None = Field(
        default=None,
        description="What happens to quotas when this policy is deleted. Restore: each entity gets back what it had before Tidegate "
        "first wrote it. Keep: everything stays as it is. Unset means Restore.",
    )
    rollup: Rollup | None = Field(
        default=None, description="Usage tables, chargeback reports and recommended contracts. Unset means that there are none."
    )

    rules = (
        Rule(
            cel="!has(self.rollup) || has(self.metrics)",
            message="metrics is required with rollup: usage is read from the Prometheus that it names",
            reason="FieldValueRequired",
            field_path=".metrics",
            holds=lambda policy: policy.rollup is None or policy.metrics is not None,
        ),
    )

    @property
    def leader_scaling_or_default(self) -> LeaderScaling:
        """How contracts follow leaders; all defaults where unset."""
        return self.leader_scaling or LeaderScaling()

    @property
    def escalation_or_default(self) -> Escalation:
        """How tiers are throttled; all defaults where unset."""
        return self.escalation or Escalation()

    @property
    def write_budget_or_default(self) -> WriteBudget:
        """The write budget; its default where unset."""
        return self.write_budget or WriteBudget()

    @property
    def removal_or_default(self) -> Removal:
        """The removal cap; its default where unset."""
        return self.removal or Removal()

    @property
    def deletion_or_default(self) -> DeletionPolicy:
        """What happens on deletion; Restore where unset."""
        return self.deletion or "Restore"
