"""Whole custom resources as they are read: metadata and spec. What we write ourselves, the status, is not read back here."""

from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from tidegate.resources.override import OverrideSpec
from tidegate.resources.policy import PolicySpec
from tidegate.resources.tiers import TierSpec


class ObjectMeta(BaseModel):
    """The metadata that a resource is known by. What else Kubernetes keeps there is read from the raw object where it matters."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    name: str = Field(min_length=1, max_length=253)
    namespace: str = Field(default="default", min_length=1, max_length=253)

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class BrokerBandwidthPolicy:
    """One Kafka cluster and the bandwidth of its brokers."""

    metadata: ObjectMeta
    spec: PolicySpec


@dataclass(frozen=True, slots=True)
class BusinessTier:
    """A group of businesses: how important they are, what they are promised and what they drop to."""

    metadata: ObjectMeta
    spec: TierSpec

    @property
    def policy_key(self) -> str:
        """namespace/name of the policy, which lives in the same namespace."""
        return f"{self.metadata.namespace}/{self.spec.policy_ref.name}"


@dataclass(frozen=True, slots=True)
class QuotaOverride:
    """A human's decision about one member or one level, which ends by itself."""

    metadata: ObjectMeta
    spec: OverrideSpec

    @property
    def policy_key(self) -> str:
        """namespace/name of the policy, which lives in the same namespace."""
        return f"{self.metadata.namespace}/{self.spec.policy_ref.name}"


CustomResource = BrokerBandwidthPolicy | BusinessTier | QuotaOverride
