"""The policy of a command with tiers, overrides and credentials, from files or from Kubernetes.

Nothing is written. The operator's own `observe.declared` interprets the objects, so that a command
and the operator cannot understand one differently.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import yaml

from tidegate.commands.context import CommandContext
from tidegate.commands.options import AccessOptions, PolicyOptions
from tidegate.errors import InvalidResource, NotFound, TidegateError, Unauthorized, joined
from tidegate.kube.api import (
    BANDWIDTH_BUDGETS,
    BROKER_BANDWIDTH_POLICIES,
    BUSINESS_TIERS,
    QUOTA_OVERRIDES,
    Kubernetes,
    ResourceKind,
)
from tidegate.settings import PolicyBounds
from tidegate_logic.decision import Memory
from tidegate_logic.model import Budget, Entity, Note, QuotaKey, Usage
from tidegate_logic.quotas.budget import RemovalMemory
from tidegate_logic.quotas.leaving import GRACE_SECONDS, Waiting
from tidegate_logic.reasons import Reason

if TYPE_CHECKING:
    from tidegate.kafka.adminapi.store import AdminQuotaStore
    from tidegate.kafka.quota_store import QuotaStore
    from tidegate.kafka.zookeeper.tree import ZnodeTree
    from tidegate.observe.declared import Declared
    from tidegate.observe.observation import KafkaCluster, ObservationResult, ReplicationSource
    from tidegate.observe.secrets_and_hosts import Secrets
    from tidegate.prometheus.settings import MetricsSettings
    from tidegate.resources.policy import KafkaCluster as KafkaSpec
    from tidegate.rollup.fold.broker import FactorBounds
    from tidegate.rollup.tables.format import Owner
    from tidegate.rollup.terms.sources import PolicyTerms


# Custom resources from YAML files, as `kubectl apply -f` would take them, but read strictly: a
# misspelt field is an error. Objects of other kinds are skipped, so that a whole application's
# folder can be given.


Manifest = Mapping[str, Any]
SUFFIXES = (".yaml", ".yml")
STANDARD_INPUT = "-"


class _AsKubectlReads(yaml.SafeLoader):
    """Reads bare words as kubectl does: `y` is true, 1e5 a number, and a time the text it is."""

    def number(self, node: yaml.ScalarNode) -> int:
        """Any whole number of Go's; 010 is an octal one."""
        text = str(node.value).replace("_", "").lower()
        return int(text, 8 if _OCTAL.fullmatch(text) else 0)

    def truth(self, node: yaml.ScalarNode) -> bool:
        """A word that says yes or no."""
        return str(node.value).lower() in ("y", "yes", "true", "on")

    def text(self, node: yaml.ScalarNode) -> str:
        """`<<` as a value, not as the key that merges."""
        return str(node.value)


_OCTAL = re.compile("[-+]?0[0-7]+")
_DIGITS = "[0-9][0-9_]*"
_TAG = "tag:yaml.org,2002:"
_AsKubectlReads.yaml_implicit_resolvers = {
    None: [
        (f"{_TAG}{tag}", re.compile(rf"(?:{pattern})\Z"))
        for tag, pattern in (
            ("null", "|~|null|Null|NULL"),
            ("bool", "[yYnN]|[yY]es|YES|[nN]o|NO|[oO]n|ON|[oO]ff|OFF"),
            ("bool", "[tT]rue|TRUE|[fF]alse|FALSE"),
            ("int", "(?:[-+]_*)?(?:0_*|[1-9][0-9_]*|0[oO]?_*[0-7][0-7_]*)"),
            ("int", "(?:[-+]_*)?0(?:[xX]_*[0-9a-fA-F][0-9a-fA-F_]*|[bB]_*[01][01_]*)"),
            # one that begins with its point has no underscores
            ("float", r"\.[0-9]+(?:[eE][-+]?[0-9]+)?"),
            (
                "float",
                rf"(?:[-+]_*\.{_DIGITS}|(?:[-+]_*)?{_DIGITS}(?:\.[0-9_]*)?)"
                rf"(?:[eE][-+]?_*{_DIGITS})?",
            ),
            ("float", r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"),
            ("merge", "<<"),
        )
    ]
}
_AsKubectlReads.add_constructor(f"{_TAG}int", _AsKubectlReads.number)
_AsKubectlReads.add_constructor(f"{_TAG}bool", _AsKubectlReads.truth)
_AsKubectlReads.add_constructor(f"{_TAG}merge", _AsKubectlReads.text)  # as a value


def read_manifests(
    sources: Iterable[str], *, namespace: str, standard_input: TextIO = sys.stdin
) -> tuple[Manifest, ...]:
    """Every policy, tier and override in these files and directories (not deeper), in order.

    Each has a namespace afterwards. Raises NotFound for a source that does not exist or a directory
    without YAML, InvalidResource for what does not parse, for an object that breaks its schema, and
    for two objects of the same kind and name.
    """
    from tidegate.resources.kinds import parse_object

    manifests: dict[tuple[str, str, str], Manifest] = {}
    for name, text in texts_of(sources, standard_input):
        for document in _documents(name, text):
            manifest = with_namespace(document, namespace)
            parse_object(manifest, strict=True)
            key = (
                manifest["kind"],
                manifest["metadata"]["namespace"],
                manifest["metadata"]["name"],
            )
            if key in manifests:
                raise InvalidResource(
                    f"{key[0]} {key[1]}/{key[2]} appears twice in the given files, the second "
                    f"time in {name}. Remove one."
                )
            manifests[key] = manifest
    return tuple(manifests.values())


def texts_of(sources: Iterable[str], standard_input: TextIO) -> Iterator[tuple[str, str]]:
    """Name and text of each file; of a directory all YAML in it (not deeper). Raises NotFound."""
    for source in sources:
        if source == STANDARD_INPUT:
            yield "standard input", _bounded("Standard input", standard_input.read(_MOST_READ + 1))
            continue
        for path in _paths(Path(source)):
            yield str(path), _text_of(path)


_MOST_READ = 1024 * 1024  # characters; the API server takes no larger object


def _bounded(name: str, text: str) -> str:
    """The text. Raises InvalidResource for more than anyone writes by hand."""
    if len(text) > _MOST_READ:
        raise InvalidResource(
            f"{name} is larger than 1 MiB, the most that is read; nothing was done.",
            advice="Give only the files with the policy and its tiers.",
        )
    return text


def _paths(source: Path) -> list[Path]:
    if not source.is_dir():
        return [source]
    found = sorted(path for path in source.iterdir() if path.suffix in SUFFIXES)
    if not found:
        raise NotFound(
            Reason.INVALID_SPEC,
            f"Directory {source} has no {' or '.join(SUFFIXES)} file; nothing was done.",
        )
    return found


def _text_of(path: Path) -> str:
    from tidegate.causes import file_problem

    try:
        with path.open(encoding="utf-8") as file:
            return _bounded(f"File {path}", file.read(_MOST_READ + 1))
    except (OSError, UnicodeDecodeError) as error:
        raise NotFound(
            Reason.INVALID_SPEC,
            f"File {path} cannot be read ({file_problem(error)}); nothing was done.",
        ) from error


def yaml_documents(name: str, text: str) -> list[Any]:
    """All documents of a file as kubectl reads them, empty ones as None. Raises InvalidResource."""
    try:
        return list(yaml.load_all(text, Loader=_AsKubectlReads))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = "" if mark is None else f" at line {mark.line + 1}, column {mark.column + 1}"
        raise InvalidResource(
            f"{name} is not YAML{place}: check indentation, brackets and quotes. Nothing was done."
        ) from error


def _documents(name: str, text: str) -> Iterator[dict[str, Any]]:
    for document in yaml_documents(name, text):
        if document is None:
            continue
        if not isinstance(document, dict):
            raise InvalidResource(
                f"{name} holds a document that is not an object. Nothing was done."
            )
        yield from _ours(name, document)


def _ours(name: str, document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The document itself, the items of a List, or nothing for a foreign object.

    Raises InvalidResource for our kinds in an unknown version.
    """
    from tidegate.resources.kinds import API_VERSION, KINDS

    if document.get("kind") == "List" and isinstance(document.get("items"), list):
        for item in document["items"]:
            if isinstance(item, dict):
                yield from _ours(name, item)
        return
    version = str(document.get("apiVersion", ""))
    known_kind = document.get("kind") in {kind.kind for kind in KINDS}
    if known_kind and version.partition("/")[0] != API_VERSION.partition("/")[0]:
        raise InvalidResource(
            f"{name} holds a {document['kind']} of {version or 'no apiVersion'}; this version "
            f"knows {API_VERSION}."
        )
    if version.partition("/")[0] == API_VERSION.partition("/")[0]:
        yield document


def with_namespace(document: dict[str, Any], namespace: str) -> dict[str, Any]:
    """The same document, in this namespace where it names none.

    A bare `n` or `0` is not a text and stays, so that reading the object refuses it.
    """
    metadata = document.get("metadata")
    if not isinstance(metadata, dict) or metadata.get("namespace") not in (None, ""):
        return document
    return {**document, "metadata": {**metadata, "namespace": namespace}}


RawObject = Mapping[str, Any]
DEFAULT_NAMESPACE = "default"
_READ_KINDS = (BROKER_BANDWIDTH_POLICIES, BUSINESS_TIERS, QUOTA_OVERRIDES)


@dataclass(frozen=True, slots=True)
class PolicySource:
    """One policy with its tiers, and Kubernetes for its credentials (None = it has none).

    `status` is the policy's last status, `tier_statuses` are those of its tiers by their keys. Both
    are empty with files, and before the operator has written one. `tiers_changed_ms` is when the
    spec of each tier changed last, by Kubernetes' own account of who set which field.
    `budgets_listed` is false where nobody may see them.
    """

    declared: Declared
    kubernetes: Kubernetes | None = None
    status: Mapping[str, Any] = field(default_factory=dict)
    tier_statuses: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    tiers_changed_ms: Mapping[str, int] = field(default_factory=dict)
    bounds: PolicyBounds = field(default_factory=PolicyBounds)
    annotations: Mapping[str, str] = field(default_factory=dict)
    budgets_listed: bool = True

    def memory(self, entities: Iterable[Entity], now_seconds: float) -> Memory:
        """What the operator remembers of these entities and its status shows: the graces.

        Its passes are taken to go on: it has looked just now.

        Everything else of its memory is in no status, and is as after a restart.
        """
        from tidegate.resources.fields import parse_moment

        waiting = {
            one["entity"]: Waiting(parse_moment(one["restoredAt"]) - GRACE_SECONDS, now_seconds)
            for one in self.status.get("leaving") or ()
        }
        unwanted = {
            (entity, key): waiting[str(entity)]
            for entity in entities
            if str(entity) in waiting
            for key in QuotaKey
        }
        return Memory(removals=RemovalMemory(unwanted=unwanted))

    def zookeeper_secrets(self) -> Secrets:
        """The Secrets for ZooKeeper. Raises NotFound when they must come from a file instead."""
        zookeeper = self.kafka.zookeeper
        return self._secrets(
            frozenset() if zookeeper is None else zookeeper.secret_names,
            option="--credentials-file",
        )

    def brokers_secrets(self) -> Secrets:
        """The Secrets for the policy's brokers. Raises like `zookeeper_secrets`."""
        from tidegate.resources.authentication import secret_names

        return self._secrets(
            secret_names(self.kafka.tls, self.kafka.authentication),
            option="--client-credentials-file",
        )

    def metrics_secrets(self) -> Secrets:
        """The Secrets for the policy's Prometheus. Raises like `zookeeper_secrets`."""
        metrics = self.declared.spec.metrics
        return self._secrets(
            frozenset() if metrics is None else metrics.prometheus.secret_names,
            option="--metrics-credentials-file",
        )

    def direct_secrets(self) -> Secrets:
        """The Secrets for brokers' exporters. Raises NotFound where they cannot be read."""
        metrics = self.declared.spec.metrics
        direct = None if metrics is None else metrics.direct
        names = frozenset[str]() if direct is None else direct.secret_names
        return self._secrets(names, option="")

    @property
    def kafka(self) -> KafkaSpec:
        return self.declared.spec.kafka

    @property
    def known_budgets(self) -> tuple[Budget, ...] | None:
        """The budgets, oldest first; None unless all could be listed and read."""
        is_known = self.budgets_listed and not self.declared.broken_budgets
        return self.declared.budgets if is_known else None

    def remarks(self) -> tuple[str, ...]:
        """A sentence for each unreadable tier, whose quotas stay, and each unreadable override."""
        tiers = (
            f"{broken.message} Its quotas stay as they are."
            if broken.reason is Reason.INVALID_SPEC
            else f"{broken.key}: {broken.message}"
            for broken in self.declared.broken
        )
        return (
            *tiers,
            *(broken.message for broken in self.declared.broken_overrides),
            *(broken.message for broken in self.declared.broken_budgets),
            *(f"{key}: {why}" for key, why in self.declared.not_let_in.items()),
        )

    def usage(self, now_seconds: float) -> tuple[Usage | None, tuple[Note, ...]]:
        """Usage as the rollup Jobs noted it and the operator takes it; a note if unreadable."""
        from tidegate.kube.rollup_jobs import read_result

        policy = self.declared.policy
        if self.kubernetes is None or self.declared.spec.rollup is None:
            return None, ()
        namespace, _, name = policy.key.partition("/")
        try:
            result, problem = read_result(
                self.kubernetes,
                {"metadata": {"namespace": namespace, "name": name, "uid": policy.uid}},
            )
        except TidegateError as error:
            words = f"Recommended contracts are not known here: {error.for_command}"
            return None, (Note(error.reason, words),)
        if problem is not None:
            words = f"The result of the rollup Jobs is not used: {problem}"
            return None, (Note(Reason.ROLLUP_RESULT_UNUSABLE, words),)
        return (
            None if result is None or now_seconds * 1000 > result.valid_until_ms else result.usage
        ), ()

    def _secrets(self, names: Collection[str], *, option: str) -> Secrets:
        from tidegate.observe.secrets_and_hosts import Secrets, read_secrets

        namespace = self.declared.policy.key.partition("/")[0]
        if names and self.kubernetes is None:
            listed = ", ".join(f"{namespace}/{name}" for name in sorted(names))
            raise NotFound(
                Reason.SECRET_UNREADABLE,
                f"Policy {self.declared.policy.key} takes credentials from Secret {listed}, which "
                "cannot be read without Kubernetes.",
                advice=f"Give them with {option}." if option else "",
            )
        if self.kubernetes is None:
            return Secrets(namespace)
        try:
            return read_secrets(self.kubernetes, namespace, names, bounds=self.bounds)
        except TidegateError as error:
            advice = "If you may not read this Secret, give the credentials with "
            advice = f"{advice}{option}." if option else ""
            raise NotFound(error.reason, error.what, advice=joined(error.advice, advice)) from error


def find_policy(
    around: CommandContext, options: PolicyOptions, *, may_be_in_files: bool = True
) -> PolicySource:
    """The one policy that the options mean, with its tiers, overrides and budgets.

    Where the command takes files too, an error about Kubernetes says so (`may_be_in_files`).
    Raises NotFound when there is none, InvalidResource when there are several and none is named, or
    when the policy does not read. A tier from the cluster that does not read is held by the
    operator, and so here (`remarks`).
    """
    from tidegate.observe.declared import belongs_to, declare, object_key
    from tidegate.observe.namespaces import labels_now, unknown_labels, with_tiers_elsewhere
    from tidegate.observe.secrets_and_hosts import refuse_other_hosts
    from tidegate.observe.strimzi import kafka_users_now, no_kafka_users

    kubernetes, found, budgets, unread = _objects(around, options, may_be_in_files=may_be_in_files)
    policies, tiers, overrides = found
    policy = _chosen(policies, options, kubernetes=kubernetes)
    tiers, unlisted = with_tiers_elsewhere(kubernetes, policy, tiers, options.place)
    ours, said, shared = (
        [raw for raw in objects if belongs_to(raw, policy)]
        for objects in (tiers, overrides, budgets or ())
    )
    statuses = {object_key(raw): raw.get("status") or {} for raw in ours}
    labels = unknown_labels if kubernetes is None else labels_now(kubernetes)
    kafka_users = no_kafka_users if kubernetes is None else kafka_users_now(kubernetes)
    declared = replace(
        declare(
            policy,
            ours,
            overrides=said,
            # the operator may know those that are not listed here
            budgets=None if unread and (policy.get("status") or {}).get("budgets") else shared,
            labels=labels,
            kafka_users=kafka_users,
            unread_budgets=unread,
        ),
        unlisted=unlisted,
    )
    refuse_other_hosts(declared.policy.key, declared.spec, around.bounds)
    return PolicySource(
        declared,
        kubernetes,
        policy.get("status") or {},
        statuses,
        {object_key(raw): at_ms for raw in ours if (at_ms := spec_changed_ms(raw)) is not None},
        around.bounds,
        policy["metadata"].get("annotations") or {},
        budgets_listed=budgets is not None,
    )


def spec_changed_ms(raw: RawObject) -> int | None:
    """When a field of the object's spec was set or removed last; None if nobody kept that.

    Kubernetes keeps it to the second, for each client that set a field.
    """
    try:
        times = [
            datetime.fromisoformat(entry["time"]).timestamp()
            for entry in raw["metadata"].get("managedFields") or ()
            if "f:spec" in entry["fieldsV1"]
        ]
    except (KeyError, TypeError, ValueError):  # a file that somebody edited
        return None
    return round(max(times) * 1000) if times else None


def in_one_namespace(around: CommandContext, options: PolicyOptions) -> PolicyOptions:
    """The options of a command that writes: the policy is in the namespace that was named, or in
    the one that kubectl would act in.
    """
    place = options.place or around.context_namespace(options.kubeconfig, options.context)
    return replace(options, namespace=place)


def stored_policy(
    around: CommandContext, options: PolicyOptions
) -> tuple[Kubernetes, RawObject, list[RawObject]]:
    """The one policy to change in Kubernetes, and its tiers, valid or not.

    It is in the namespace that was named or in the context's, never in another. Raises NotFound,
    which names those elsewhere, and InvalidResource as `find_policy` does.
    """
    from tidegate.observe.declared import belongs_to
    from tidegate.observe.namespaces import with_tiers_elsewhere

    options = in_one_namespace(around, options)
    kubernetes = around.open_kubernetes(options.kubeconfig, options.context, options.as_user)
    policy = _chosen(
        _listed(kubernetes, BROKER_BANDWIDTH_POLICIES, options), options, kubernetes=kubernetes
    )
    own = _listed(kubernetes, BUSINESS_TIERS, options)
    tiers, _ = with_tiers_elsewhere(kubernetes, policy, own, options.place)
    return kubernetes, policy, [raw for raw in tiers if belongs_to(raw, policy)]


def _objects(
    around: CommandContext, options: PolicyOptions, *, may_be_in_files: bool
) -> tuple[Kubernetes | None, Sequence[Sequence[RawObject]], Sequence[RawObject] | None, str]:
    """Policies, tiers and overrides from the files, or those of Kubernetes; and budgets.

    These are None where they may not be listed. The text says why they are not, "" = they are.
    """
    if options.file:
        manifests: Sequence[RawObject] = read_manifests(
            options.file,
            namespace=options.namespace or DEFAULT_NAMESPACE,
            standard_input=around.standard_input,
        )
        *found, budgets = (
            [item for item in manifests if item["kind"] == kind.kind]
            for kind in (*_READ_KINDS, BANDWIDTH_BUDGETS)
        )
        return None, found, budgets, ""
    kubernetes = _opened_kubernetes(around, options, may_be_in_files=may_be_in_files)
    found = [_listed(kubernetes, kind, options) for kind in _READ_KINDS]
    try:
        return kubernetes, found, _listed(kubernetes, BANDWIDTH_BUDGETS, options), ""
    except NotFound as error:
        return kubernetes, found, (), error.message
    except Unauthorized as error:
        return kubernetes, found, None, error.message


def _opened_kubernetes(
    around: CommandContext, options: PolicyOptions, *, may_be_in_files: bool
) -> Kubernetes:
    try:
        return around.open_kubernetes(options.kubeconfig, options.context, options.as_user)
    except Unauthorized as error:
        if not may_be_in_files:
            raise
        raise Unauthorized(
            error.what,
            advice=f"{error.advice} Or read the policy and its tiers with -f FILE, which needs no "
            "Kubernetes.",
        ) from error


def policy_of(around: CommandContext, files: list[str] | None) -> PolicySource | None:
    """The one policy in the files; None without files. Raises what `find_policy` raises."""
    return find_policy(around, PolicyOptions(file=files)) if files else None


def terms_of(source: PolicySource | None) -> PolicyTerms | None:
    """The policy's tiers, contracts and limits as rollups take them; None without a policy."""
    from tidegate.rollup.terms.sources import PolicyTerms

    if source is None:
        return None
    return PolicyTerms.of(
        source.declared.policy,
        source.declared.tiers or (),
        source.tier_statuses,
        source.tiers_changed_ms,
        source.known_budgets,
    )


def owner_of(source: PolicySource | None, cluster_id: str | None = None) -> Owner:
    """Whose usage tables are written: the policy, and its Kafka cluster as far as it is known."""
    from tidegate.rollup.tables.format import NOBODY, TAKE_OVER_ANNOTATION, Owner

    if source is None:
        return replace(NOBODY, cluster=cluster_id or "")
    known = cluster_id or source.kafka.cluster_id or source.status.get("clusterId") or ""
    policy, former = source.declared.policy, source.annotations.get(TAKE_OVER_ANNOTATION)
    return Owner(policy.uid, policy.key, str(known), (former,) if former else ())


def bounds_of(source: PolicySource | None) -> FactorBounds:
    """How far gauges and counts may be apart, by the policy or by default."""
    from tidegate.rollup.fold.broker import BOUNDS, FactorBounds

    rollup = None if source is None else source.declared.spec.rollup
    return BOUNDS if rollup is None else FactorBounds(*rollup.factor_bounds)


def _listed(kubernetes: Kubernetes, kind: ResourceKind, options: PolicyOptions) -> list[RawObject]:
    return list(kubernetes.list_all(kind, (options.place,) if options.place else ()).items)


def _chosen(
    policies: Sequence[RawObject], options: PolicyOptions, *, kubernetes: Kubernetes | None
) -> RawObject:
    from tidegate.observe.declared import object_key

    where = (
        "in the given files"
        if options.file
        else f"in namespace {options.place}"
        if options.place
        else "in the cluster"
    )
    known = ", ".join(sorted(object_key(policy) for policy in policies)) or "none"
    found = [policy for policy in policies if _is_named(policy, options)]
    if not found:
        named = f" {options.name}" if options.name else ""
        raise NotFound(
            Reason.POLICY_NOT_FOUND,
            f"There is no BrokerBandwidthPolicy{named} {where} (known: {known})."
            f"{_elsewhere(kubernetes, options)}",
        )
    if len(found) > 1:
        raise InvalidResource(
            f"There are several policies {where} ({known}).",
            advice="Name one as NAMESPACE/NAME.",
        )
    return found[0]


def _is_named(policy: RawObject, options: PolicyOptions) -> bool:
    from tidegate.observe.declared import object_key

    return options.name in (None, policy["metadata"]["name"], object_key(policy))


def _elsewhere(kubernetes: Kubernetes | None, options: PolicyOptions) -> str:
    """Where a policy that is not in the namespace is; empty where none is, or none may be seen."""
    from tidegate.observe.declared import object_key

    if kubernetes is None or options.place is None:
        return ""
    name = (options.name or "").rpartition("/")[2] or None
    wherever = replace(options, policy=name, policy_name=None, namespace=None)
    try:
        everywhere = _listed(kubernetes, BROKER_BANDWIDTH_POLICIES, wherever)
    except TidegateError:  # the right to list them may be of one namespace
        return ""
    found = sorted(object_key(policy) for policy in everywhere if _is_named(policy, wherever))
    if not found:
        return ""
    namespace = found[0].partition("/")[0]
    return f" Elsewhere there is {', '.join(found)}: name it so, or add -n {namespace}."


# Connections to one Kafka cluster, closed again whatever happens in between. Addresses and
# credentials given on the command line win over those of the policy.


# the model requires brokers; a command that opens ZooKeeper alone never connects to them
_NOT_ASKED = "not-asked:9092"


@contextmanager
def opened_cluster(
    around: CommandContext, source: PolicySource, options: AccessOptions
) -> Iterator[KafkaCluster]:
    """The policy's cluster with its leaders, as the operator holds it."""
    from tidegate.observe.connections import open_cluster

    zookeeper, secrets = named_zookeeper(source, options)
    brokers, brokers_secrets = named_brokers(source, options)
    with tempfile.TemporaryDirectory(prefix="tidegate-") as folder:
        opened = open_cluster(
            brokers.model_copy(update={"zookeeper": zookeeper.zookeeper}),
            secrets=secrets,
            brokers_secrets=brokers_secrets,
            folder=Path(folder),
            open_tree=around.open_tree,
            open_admin_store=around.open_admin_store,
            open_topology=around.open_topology,
            open_replication=around.open_replication,
            open_share_groups=around.open_share_groups,
        )
        with closing(opened) as cluster:
            yield cluster


def metrics_of(
    source: PolicySource, credentials: Path | None, *, url: str | None = None
) -> MetricsSettings | None:
    """The settings for the policy's Prometheus; None if it declares no metrics.

    `credentials` is a file instead of the Secrets, `url` an address instead of the policy's.
    Raises what reading any of them raises.
    """
    from tidegate.commands.credentials_file import read_credentials_file
    from tidegate.observe.connections import metrics_settings, settings_of

    spec = source.declared.spec.metrics
    if spec is None:
        return None
    if url is not None:
        server = spec.prometheus.model_copy(update={"url": url})
        spec = spec.model_copy(update={"prometheus": server})
    if credentials is None:
        return metrics_settings(spec, source.metrics_secrets())
    return settings_of(spec, read_credentials_file(credentials).for_prometheus(spec.prometheus))


@contextmanager
def opened_store(around: CommandContext, options: AccessOptions) -> Iterator[QuotaStore]:
    """The quota store of the command line: on ZooKeeper where one is given, else on the brokers.

    Raises InvalidResource without any address.
    """
    from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore

    with tempfile.TemporaryDirectory(prefix="tidegate-") as folder:
        if options.zookeeper or not options.bootstrap_servers:
            spec, secrets = named_zookeeper(None, options)
            tree = around.open_tree(spec, secrets, folder=Path(folder))
            opened: QuotaStore = ZooKeeperQuotaStore(tree)
        else:
            spec, secrets = named_brokers(None, options)
            opened = around.open_admin_store(spec, secrets, folder=Path(folder))
        with closing(opened) as store:
            yield store


@contextmanager
def opened_replication(
    around: CommandContext, options: AccessOptions
) -> Iterator[ReplicationSource]:
    """Replication on the brokers of the command line."""
    spec, secrets = named_brokers(None, options)
    with (
        tempfile.TemporaryDirectory(prefix="tidegate-") as folder,
        closing(around.open_replication(spec, secrets, folder=Path(folder))) as source,
    ):
        yield source


@contextmanager
def opened_both(
    around: CommandContext, options: AccessOptions
) -> Iterator[tuple[ZnodeTree, Callable[[], AdminQuotaStore]]]:
    """The ZooKeeper of the command line, and what opens the quota store on its brokers."""
    spec, secrets = named_zookeeper(None, options)
    brokers, brokers_secrets = named_brokers(None, options)
    with tempfile.TemporaryDirectory(prefix="tidegate-") as name:
        folder = Path(name)
        with closing(around.open_tree(spec, secrets, folder=folder)) as tree:
            yield tree, lambda: around.open_admin_store(brokers, brokers_secrets, folder=folder)


def observed(
    around: CommandContext, source: PolicySource, cluster: KafkaCluster
) -> ObservationResult:
    """The operator's own observation, made now. Brokers are asked for their settings, too."""
    from tidegate.control.ledger_watch import look_of
    from tidegate.observe.broker_settings import BrokerSettings
    from tidegate.observe.observation import Observer

    settings = BrokerSettings(settle_seconds=0.0, beside=False)
    observer = Observer(settings, attrgetter("for_command"))
    usage, warnings = source.usage(around.now_seconds())
    seen = observer.observe(
        source.declared,
        cluster,
        now_seconds=around.now_seconds(),
        usage=usage,
        ledger=look_of(source.status, source.declared.policy),
    )
    warnings = (*warnings, *_unseen_kafka_users(source.declared), *_cordoned(settings.known))
    return replace(seen, warnings=(*seen.warnings, *warnings))


def _cordoned(settings: Mapping[int, Mapping[str, str]]) -> Iterator[Note]:
    """The brokers whose leaders may move soon."""
    from tidegate.control.report.conditions import sentence
    from tidegate.observe.broker_settings import (
        CORDONED_IMPACT,
        cordoned_brokers,
        cordoned_finding,
    )

    brokers = cordoned_brokers(settings)
    if brokers:
        text = f"{sentence(cordoned_finding(brokers))}. {CORDONED_IMPACT}."
        yield Note(Reason.BROKER_CORDONED, text)


def _unseen_kafka_users(declared: Declared) -> Iterator[Note]:
    """That a command sees less of Strimzi's KafkaUsers than the operator may."""
    strimzi = declared.strimzi
    if strimzi is not None and strimzi.users is None:
        why = strimzi.unread or "the right to list them is missing"
        yield Note(
            Reason.KAFKA_USERS_UNREAD,
            f"The KafkaUsers of Strimzi's cluster {strimzi.cluster} are not known here: "
            f"{why.rstrip('.')}. The operator leaves alone what they declare, if it may read them.",
        )


def _spec(source: PolicySource | None, options: AccessOptions) -> KafkaSpec:
    """The policy's cluster with the command line's addresses instead of its own."""
    from pydantic import ValidationError

    from tidegate.resources.policy import KafkaCluster as KafkaSpec
    from tidegate.resources.policy import ZooKeeperConnection

    changes: dict[str, Any] = {}
    if options.bootstrap_servers:
        changes["bootstrap_servers"] = options.bootstrap_servers
    if options.ledger_topic:
        changes["ledger_topic"] = options.ledger_topic
    try:
        if options.zookeeper:
            declared = source.kafka.zookeeper if source is not None else None
            changes["zookeeper"] = ZooKeeperConnection(
                **{**(dict(declared) if declared is not None else {}), "connect": options.zookeeper}
            )
        if source is not None:
            return KafkaSpec(**{**dict(source.kafka), **changes})
        if not options.zookeeper and not options.bootstrap_servers:
            raise InvalidResource(
                "No address: give one with --zookeeper HOST:PORT/CHROOT or in TIDEGATE_ZOOKEEPER, "
                "or --bootstrap-servers HOST:PORT for a cluster whose quotas go through its "
                "brokers."
            )
        return KafkaSpec(**{"bootstrap_servers": _NOT_ASKED, **changes})
    except ValidationError as error:
        problems = "; ".join(
            f"{details['msg'].removeprefix('Value error, ')} (found {details['input']!r})"
            for details in error.errors()
        )
        raise InvalidResource(f"An address on the command line is wrong: {problems}.") from None


def named_zookeeper(
    source: PolicySource | None, options: AccessOptions
) -> tuple[KafkaSpec, Secrets]:
    """The policy's cluster with the command line's address and login of ZooKeeper."""
    from tidegate.commands.credentials_file import read_credentials_file
    from tidegate.observe.secrets_and_hosts import Secrets

    spec = _spec(source, options)
    if options.credentials_file is not None and spec.zookeeper is not None:
        zookeeper, secrets = read_credentials_file(options.credentials_file).for_zookeeper(
            spec.zookeeper
        )
        return spec.model_copy(update={"zookeeper": zookeeper}), secrets
    return spec, Secrets() if source is None else source.zookeeper_secrets()


def named_brokers(
    source: PolicySource | None, options: AccessOptions, *, keys: Mapping[str, str] | None = None
) -> tuple[KafkaSpec, Secrets]:
    """The policy's cluster with the command line's address and login of the brokers.

    `keys` are those of the credentials that their file lacks.
    """
    from tidegate.commands.credentials_file import read_credentials_file
    from tidegate.observe.secrets_and_hosts import Secrets

    spec = _spec(source, options)
    if options.client_credentials_file is not None:
        found = read_credentials_file(options.client_credentials_file)
        lacking = {key: value.encode() for key, value in (keys or {}).items()}
        found = replace(found, keys={**lacking, **found.keys})
        return found.for_brokers(spec)
    return spec, Secrets() if source is None else source.brokers_secrets()
