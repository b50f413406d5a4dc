"""Whole custom resources as they are read: metadata and spec. What we write ourselves, the status, is not read back here."""

from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from tidegate.resources.policy import PolicySpec
from tidegate.resources.tier import TierSpec

PAUSED_ANNOTATION = "tidegate.io/paused"
CONFIRM_REMOVAL_ANNOTATION = "tidegate.io/confirm-removal"


class ObjectMeta(BaseModel):
    """The metadata that Tidegate looks at. An object from a file has no uid, generation or creation time."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore", strict=True)

    name: str = Field(min_length=1, max_length=253)
    namespace: str = Field(default="default", min_length=1, max_length=253)
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    finalizers: tuple[str, ...] = ()
    annotations: dict[str, str] | None = None

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"

    @property
    def is_deleting(self) -> bool:
        """Whether the object is on its way out and only a finalizer keeps it."""
        return self.deletion_timestamp is not None


@dataclass(frozen=True, slots=True)
class BrokerBandwidthPolicy:
    """One Kafka cluster and the bandwidth of its brokers."""

    metadata: ObjectMeta
    spec: PolicySpec

    @property
    def is_paused(self) -> bool:
        """Whether a person froze everything as it is; any value but `true` is ignored."""
        return (self.metadata.annotations or {}).get(PAUSED_ANNOTATION) == "true"

    @property
    def confirmed_removals(self) -> int | None:
        """How many removals a person confirmed; None without the annotation or where it is no number."""
        text = (self.metadata.annotations or {}).get(CONFIRM_REMOVAL_ANNOTATION, "")
        return int(text) if text.isascii() and text.isdigit() else None


@dataclass(frozen=True, slots=True)
class BusinessTier:
    """A group of businesses: how important they are, what they are promised and what they drop to."""

    metadata: ObjectMeta
    spec: TierSpec

    @property
    def policy_key(self) -> str:
        """namespace/name of the policy, which lives in the same namespace."""
        return f"{self.metadata.namespace}/{self.spec.policy_ref.name}"


CustomResource = BrokerBandwidthPolicy | BusinessTier
