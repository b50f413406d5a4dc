"""Opens one Kafka cluster for a command and closes it again, whatever happens in between.

Addresses and credentials given on the command line win over those of the policy. Opening writes nothing.
"""

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tidegate.commands.context import Surroundings
from tidegate.commands.inputs import PolicySource
from tidegate.commands.secret_file import SecretData, read_secret_file
from tidegate.control.observe import KafkaCluster, Observer, QuotaPlugins, Seen
from tidegate.errors import InvalidResource
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore
from tidegate.kafka.zookeeper.tree import ZnodeTree
from tidegate.resources.policy import KafkaCluster as KafkaSpec
from tidegate.resources.policy import ZooKeeperConnection

_BROKERS_PATH = "/brokers/ids"
_NOT_ASKED = "not-asked:9092"  # the model demands brokers; a command that opens ZooKeeper alone never connects to them


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessOptions:
    """What the command line says of the cluster; None = as the policy says."""

    zookeeper: str | None = None
    credentials_file: Path | None = None
    bootstrap_servers: str | None = None
    client_credentials_file: Path | None = None


@contextmanager
def opened_cluster(around: Surroundings, source: PolicySource, options: AccessOptions) -> Iterator[KafkaCluster]:
    """The policy's cluster with its leaders, as the operator holds it."""
    spec = _spec(source, options)
    with opened_tree(around, source, options) as tree, tempfile.TemporaryDirectory(prefix="tidegate-") as folder:
        store = ZooKeeperQuotaStore(tree)
        secret = _client_secret(source, options)
        topology = around.open_topology(spec, secret, folder=Path(folder), topic_names=store.topic_names)
        with closing(topology):
            yield KafkaCluster(tree.address, store, topology)


@contextmanager
def opened_tree(around: Surroundings, source: PolicySource | None, options: AccessOptions) -> Iterator[ZnodeTree]:
    """The cluster's ZooKeeper. `source` None = everything is on the command line. Raises InvalidResource without any address."""
    spec, secret = _spec(source, options), _zookeeper_secret(source, options)
    with tempfile.TemporaryDirectory(prefix="tidegate-") as folder, closing(around.open_tree(spec, secret, folder=Path(folder))) as tree:
        yield tree


def observed(around: Surroundings, source: PolicySource, cluster: KafkaCluster) -> Seen:
    """What the operator's own observer sees of the cluster now; brokers are asked at once whether a plugin decides their quotas."""
    observer = Observer(QuotaPlugins(settle_seconds=0.0))
    usage, warnings = source.usage(around.now_seconds())
    seen = observer.observe(source.declared, cluster, now_seconds=around.now_seconds(), usage=usage)
    return replace(seen, warnings=(*seen.warnings, *warnings))


def live_brokers(tree: ZnodeTree) -> int | None:
    """How many brokers are registered now; None where this is no Kafka's tree."""
    (names,) = tree.children([_BROKERS_PATH])
    return None if names is None else len(names)


def _spec(source: PolicySource | None, options: AccessOptions) -> KafkaSpec:
    """The policy's cluster with the command line's addresses in place of its own."""
    changes: dict[str, Any] = {}
    if options.bootstrap_servers:
        changes["bootstrap_servers"] = options.bootstrap_servers
    try:
        if options.zookeeper:
            changes["zookeeper"] = ZooKeeperConnection(connect=options.zookeeper)
        if source is not None:
            return KafkaSpec(**{**dict(source.kafka), **changes})
        if not options.zookeeper:
            raise InvalidResource("No ZooKeeper address: give one with --zookeeper HOST:PORT/CHROOT or in TIDEGATE_ZOOKEEPER.")
        return KafkaSpec(**{"bootstrap_servers": _NOT_ASKED, "quota_store": "ZooKeeper", **changes})
    except ValidationError as error:
        problems = "; ".join(f"{details['msg'].removeprefix('Value error, ')} (found {details['input']!r})" for details in error.errors())
        raise InvalidResource(f"An address on the command line is wrong: {problems}.") from None


def _zookeeper_secret(source: PolicySource | None, options: AccessOptions) -> SecretData:
    if options.credentials_file or source is None:
        return read_secret_file(options.credentials_file)
    return source.zookeeper_secret()


def _client_secret(source: PolicySource, options: AccessOptions) -> SecretData:
    return read_secret_file(options.client_credentials_file) if options.client_credentials_file else source.client_secret()
