"""The kinds that Tidegate serves: their names, columns and models. The CRDs and the reference page are made from these."""

from dataclasses import dataclass

from tidegate.resources.override import OverrideSpec
from tidegate.resources.override_status import OverrideStatus
from tidegate.resources.policy import PolicySpec
from tidegate.resources.rules import Rule
from tidegate.resources.schema import SchemaModel
from tidegate.resources.status import PolicyStatus
from tidegate.resources.tier_status import TierStatus
from tidegate.resources.tiers import TierSpec

GROUP = "tidegate.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
CATEGORY = "kafka"

MAX_POLICY_NAME_LENGTH = 63


@dataclass(frozen=True, slots=True)
class Column:
    """One column of `kubectl get`; `priority` above zero hides it from the narrow output."""

    name: str
    json_path: str
    description: str
    type: str = "string"
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of custom resource. `rules` see the whole object, of which CEL shows only spec, status and the name."""

    kind: str
    plural: str
    short_name: str
    summary: str
    spec: type[SchemaModel]
    status: type[SchemaModel]
    columns: tuple[Column, ...]
    rules: tuple[Rule, ...] = ()
    selectable_fields: tuple[str, ...] = ()

    @property
    def crd_name(self) -> str:
        """Name of the CustomResourceDefinition."""
        return f"{self.plural}.{GROUP}"


def _ready(path: str = "status") -> str:
    return f'.status.conditions[?(@.type=="Ready")].{path}'


_AGE = Column(name="Age", json_path=".metadata.creationTimestamp", description="Time since the object was created.", type="date")
_READY = Column(name="Ready", json_path=_ready(), description="Whether everything is as the spec wants it.")
_REASON = Column(name="Reason", json_path=_ready("reason"), description="Why it is ready or not.", priority=1)

POLICY = Kind(
    kind="BrokerBandwidthPolicy",
    plural="brokerbandwidthpolicies",
    short_name="bbp",
    summary="One Kafka cluster and the bandwidth of its brokers.",
    spec=PolicySpec,
    status=PolicyStatus,
    columns=(
        _READY,
        Column(name="Mode", json_path=".spec.mode", description="Observe or Enforce."),
        Column(name="Brokers", json_path=".status.summary.brokers", description="Live brokers.", type="integer"),
        Column(
            name="Over",
            json_path=".status.summary.over",
            description="Brokers over their limit; empty while load is not watched.",
            type="integer",
        ),
        Column(name="Throttled", json_path=".status.summary.throttled", description="Levels below their contract now."),
        Column(name="Quotas", json_path=".status.summary.quotas", description="Quotas in sync of quotas managed."),
        _REASON,
        _AGE,
    ),
    rules=(
        Rule(
            cel=f"self.metadata.name.size() <= {MAX_POLICY_NAME_LENGTH}",
            message=f"metadata.name must have at most {MAX_POLICY_NAME_LENGTH} characters: it becomes a label and part of a Lease's name",
            holds=lambda metadata: len(metadata.name) <= MAX_POLICY_NAME_LENGTH,
        ),
    ),
)

TIER = Kind(
    kind="BusinessTier",
    plural="businesstiers",
    short_name="bt",
    summary="A group of businesses: how important they are, what they are promised and what they drop to.",
    spec=TierSpec,
    status=TierStatus,
    columns=(
        Column(name="Level", json_path=".spec.level", description="L0 is never throttled; L3 is throttled first."),
        Column(name="Policy", json_path=".spec.policyRef.name", description="The policy that the tier belongs to."),
        Column(name="Members", json_path=".status.summary.members", description="Members of the tier.", type="integer"),
        Column(name="State", json_path=".status.summary.state", description="The member state that most needs attention."),
        _READY,
        _REASON,
        _AGE,
    ),
    selectable_fields=(".spec.policyRef.name",),
)

OVERRIDE = Kind(
    kind="QuotaOverride",
    plural="quotaoverrides",
    short_name="qo",
    summary="A human's decision about one member or one level, which ends by itself.",
    spec=OverrideSpec,
    status=OverrideStatus,
    columns=(
        Column(name="Policy", json_path=".spec.policyRef.name", description="The policy that the override is about."),
        Column(name="Target", json_path=".status.summary.target", description="The member or the level that it is for."),
        Column(name="State", json_path=".status.state", description="Pending, Active or Expired."),
        Column(name="Until", json_path=".spec.expiresAt", description="When it ends by itself."),
        Column(name="Ready", json_path=_ready(), description="Whether it is in force for everybody it names.", priority=1),
        _REASON,
        _AGE,
    ),
    selectable_fields=(".spec.policyRef.name",),
)

KINDS = (POLICY, TIER, OVERRIDE)
