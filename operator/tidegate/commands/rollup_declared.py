"""What a policy says of its usage rollups, with its credentials, as a run takes it: Kubernetes is asked once, before Spark starts."""

from dataclasses import dataclass
from pathlib import Path

from controller_logic.model import Tier
from tidegate.commands.context import Surroundings
from tidegate.commands.inputs import PolicyOptions, PolicySource, find_policy
from tidegate.control.connections import metrics_settings
from tidegate.errors import InvalidResource
from tidegate.kube.api import BROKER_BANDWIDTH_POLICIES, JsonObject, Kubernetes
from tidegate.prometheus.settings import MetricsSettings
from tidegate.resources.rollup import Rollup

AUTHORITY_FILE = "prometheus-ca.crt"


@dataclass(frozen=True, slots=True)
class RollupPolicy:
    """One policy with rollups. `authority_secret` is the Secret of which `metrics` has a file in the folder for it."""

    kubernetes: Kubernetes
    source: PolicySource
    spec: Rollup
    metrics: MetricsSettings
    authority_secret: str | None

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


def rollup_policy(around: Surroundings, options: PolicyOptions, folder: Path) -> RollupPolicy:
    """Read it. The certificate authority of Prometheus goes into the folder.

    Raises InvalidResource for a policy without `rollup` or `metrics`, and what asking Kubernetes raises.
    """
    source = find_policy(around, options)
    spec = source.declared.spec
    if spec.rollup is None or spec.metrics is None or source.kubernetes is None:
        lacking = "rollup" if spec.rollup is None else "metrics"
        raise InvalidResource(f"Policy {source.declared.policy.key} has no spec.{lacking}, so there is nothing to roll up for it. Add it.")
    login, authority = source.metrics_secrets()
    metrics = metrics_settings(spec.metrics, login=login, authority=authority, folder=folder)
    reference = spec.metrics.prometheus.ca_secret_ref
    return RollupPolicy(source.kubernetes, source, spec.rollup, metrics, None if reference is None else reference.name)
