"""Which policy a command is about, with its tiers, overrides and credentials: from files, or from the custom resources in a cluster.

It reads and never writes. What was read is declared by the operator's own `control.declared`, so that a command and the
operator cannot understand an object differently.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from controller_logic.decision import Note
from controller_logic.model import Usage
from controller_logic.reasons import Reason
from tidegate.commands.context import Surroundings
from tidegate.commands.manifests import read_manifests
from tidegate.commands.secret_file import SecretData
from tidegate.control.declared import Declared, belongs_to, declare, object_key
from tidegate.errors import InvalidResource, NotFound, TidegateError
from tidegate.kube.api import BROKER_BANDWIDTH_POLICIES, BUSINESS_TIERS, QUOTA_OVERRIDES, Kubernetes, ResourceKind
from tidegate.kube.rollup_jobs import read_result
from tidegate.resources.fields import SecretRef
from tidegate.resources.policy import KafkaCluster as KafkaSpec

RawObject = Mapping[str, Any]
DEFAULT_NAMESPACE = "default"
_READ_KINDS = (BROKER_BANDWIDTH_POLICIES, BUSINESS_TIERS, QUOTA_OVERRIDES)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOptions:
    """How a person named the policy. With `files` Kubernetes is not asked at all."""

    files: Sequence[str] = ()
    policy: str | None = None
    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class PolicySource:
    """One policy with its tiers, and the credentials that Kubernetes holds for it (None = none could be looked up).

    `status` is what the operator said of the policy last, `tier_statuses` what it said of its tiers by their keys; empty where it said
    nothing, and with files.
    """

    declared: Declared
    kubernetes: Kubernetes | None = None
    status: Mapping[str, Any] = field(default_factory=dict)
    tier_statuses: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def zookeeper_secret(self) -> SecretData:
        """The policy's ZooKeeper Secret; empty where it names none. Raises NeedsMending when it must come from a file instead."""
        zookeeper = self.declared.spec.kafka.zookeeper
        return self._secret(zookeeper.credentials_secret_ref if zookeeper else None, option="--credentials-file")

    def client_secret(self) -> SecretData:
        """The policy's Kafka client Secret; empty where it names none. Raises like `zookeeper_secret`."""
        return self._secret(self.declared.spec.kafka.client_secret_ref, option="--client-credentials-file")

    def metrics_secrets(self) -> tuple[SecretData, SecretData]:
        """The policy's Secrets for Prometheus, of the login and of the authority; empty where it names none. Raises like the others."""
        prometheus = self.declared.spec.metrics.prometheus if self.declared.spec.metrics is not None else None
        login, authority = (prometheus.credentials_secret_ref, prometheus.ca_secret_ref) if prometheus is not None else (None, None)
        option = "--metrics-credentials-file"
        return self._secret(login, option=option), self._secret(authority, option=option)

    @property
    def kafka(self) -> KafkaSpec:
        return self.declared.spec.kafka

    def remarks(self) -> tuple[str, ...]:
        """One sentence for each tier that does not read: what it manages is left as it is; and for each override that changes nothing."""
        tiers = (f"{broken.message} What it manages stays as it is." for broken in self.declared.broken)
        return (*tiers, *(broken.message for broken in self.declared.broken_overrides))

    def usage(self, now_seconds: float) -> tuple[Usage | None, tuple[Note, ...]]:
        """What the policy's rollup Jobs say of usage, as the operator would take it; a note where that cannot be told."""
        policy = self.declared.policy
        if self.kubernetes is None or self.declared.spec.rollup is None:
            return None, ()
        namespace, _, name = policy.key.partition("/")
        try:
            result, problem = read_result(self.kubernetes, {"metadata": {"namespace": namespace, "name": name, "uid": policy.uid}})
        except TidegateError as error:
            return None, (Note(error.reason, f"Recommended contracts are not known here: {error.message}"),)
        if problem is not None:
            return None, (Note(Reason.ROLLUP_RESULT_UNUSABLE, f"What the rollup Jobs wrote down is not used: {problem}"),)
        return (None if result is None or now_seconds * 1000 > result.valid_until_ms else result.usage), ()

    def _secret(self, reference: SecretRef | None, *, option: str) -> SecretData:
        if reference is None:
            return {}
        namespace = self.declared.policy.key.partition("/")[0]
        if self.kubernetes is None:
            raise NotFound(
                Reason.SECRET_UNREADABLE,
                f"Policy {self.declared.policy.key} takes credentials from Secret {namespace}/{reference.name}, which cannot be read "
                f"without Kubernetes. Give them with {option}.",
            )
        try:
            return self.kubernetes.read_secret(namespace, reference.name)
        except TidegateError as error:
            raise NotFound(error.reason, f"{error.message} If you may not read this Secret, give the credentials with {option}.") from error


def find_policy(around: Surroundings, options: PolicyOptions) -> PolicySource:
    """The one policy that the options mean, with its tiers and overrides.

    Raises NotFound when there is none, InvalidResource when there are several and none is named, or when the policy does
    not read. A tier from the cluster that does not read is held by the operator, and so here (`remarks`).
    """
    kubernetes: Kubernetes | None = None
    if options.files:
        manifests: Sequence[RawObject] = read_manifests(
            options.files, namespace=options.namespace or DEFAULT_NAMESPACE, standard_input=around.standard_input
        )
        policies, tiers, overrides = ([item for item in manifests if item["kind"] == kind.kind] for kind in _READ_KINDS)
    else:
        kubernetes = around.open_kubernetes(options.kubeconfig, options.context)
        policies, tiers, overrides = (_listed(kubernetes, kind, options) for kind in _READ_KINDS)
    policy = _chosen(policies, options)
    ours, said = ([raw for raw in objects if belongs_to(raw, policy)] for objects in (tiers, overrides))
    statuses = {object_key(raw): raw.get("status") or {} for raw in ours}
    return PolicySource(declare(policy, ours, overrides=said), kubernetes, policy.get("status") or {}, statuses)


def _listed(kubernetes: Kubernetes, kind: ResourceKind, options: PolicyOptions) -> list[RawObject]:
    return list(kubernetes.list_all(kind, (options.namespace,) if options.namespace else ()).items)


def _chosen(policies: Sequence[RawObject], options: PolicyOptions) -> RawObject:
    where = "in the given files" if options.files else f"in namespace {options.namespace}" if options.namespace else "in the cluster"
    known = ", ".join(sorted(object_key(policy) for policy in policies)) or "none"
    found = [policy for policy in policies if options.policy in (None, policy["metadata"]["name"], object_key(policy))]
    if not found:
        named = f" {options.policy}" if options.policy else ""
        raise NotFound(Reason.POLICY_NOT_FOUND, f"There is no BrokerBandwidthPolicy{named} {where} (known: {known}).")
    if len(found) > 1:
        raise InvalidResource(f"There are several policies {where} ({known}). Name one with --policy NAMESPACE/NAME.")
    return found[0]
