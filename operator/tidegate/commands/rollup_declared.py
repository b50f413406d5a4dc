"""What a policy says of its usage rollups, with its credentials, as a run takes it: Kubernetes is asked once, before Spark starts."""

from dataclasses import dataclass

from controller_logic.model import Tier
from tidegate.commands.context import Surroundings
from tidegate.commands.inputs import PolicyOptions, PolicySource, find_policy
from tidegate.control.connections import metrics_settings
from tidegate.errors import InvalidResource
from tidegate.kube.api import BROKER_BANDWIDTH_POLICIES, JsonObject, Kubernetes
from tidegate.prometheus.settings import MetricsSettings
from tidegate.resources.rollup import Rollup


@dataclass(frozen=True, slots=True)
class RollupPolicy:
    """One policy with rollups."""

    kubernetes: Kubernetes
    source: PolicySource
    spec: Rollup
    metrics: MetricsSettings

    @property
    def name(self) -> str:
        return self.source.declared.policy.key.partition("/")[2]

    @property
    def tiers(self) -> tuple[Tier, ...]:
        return self.source.declared.tiers or ()

    @property
    def as_owner(self) -> JsonObject:
        """The policy as far as what is written down for it needs to know."""
        policy = self.source.declared.policy
        metadata = {"name": self.name, "namespace": policy.key.partition("/")[0], "uid": policy.uid}
        return {"apiVersion": BROKER_BANDWIDTH_POLICIES.api_version, "kind": BROKER_BANDWIDTH_POLICIES.kind, "metadata": metadata}


def rollup_policy(around: Surroundings, options: PolicyOptions) -> RollupPolicy:
    """Read it, and the Secrets for Prometheus.

    Raises InvalidResource for a policy without `rollup` or `metrics`, and what asking Kubernetes raises.
    """
    source = find_policy(around, options)
    spec = source.declared.spec
    if spec.rollup is None or spec.metrics is None or source.kubernetes is None:
        lacking = "rollup" if spec.rollup is None else "metrics"
        raise InvalidResource(f"Policy {source.declared.policy.key} has no spec.{lacking}, so there is nothing to roll up for it. Add it.")
    return RollupPolicy(source.kubernetes, source, spec.rollup, metrics_settings(spec.metrics, source.metrics_secrets()))
