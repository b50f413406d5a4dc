"""The quota store on ZooKeeper: Kafka's own quota nodes, with our ledger beside them.

It works on a tree of znodes, so that the same rules run on ZooKeeper and on the in-memory tree of
the tests. The control pass decides what to write; the values are checked once more before they are
sent.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tidegate.errors import Conflict, ForeignContent, Incomplete, OutcomeUnknown
from tidegate.kafka.claim import (
    claim_to_bytes,
    next_claim,
    parse_claim,
    parse_release,
    release_to_bytes,
)
from tidegate.kafka.ledger import record_to_bytes
from tidegate.kafka.quota_node import CONFIG_ROOT, entity_of_ledger_node, entity_of_path
from tidegate.kafka.quota_store import (
    Claim,
    ClusterFacts,
    WriteOutcome,
    require_batch,
    require_lease,
)
from tidegate.kafka.zookeeper.nodes import (
    CLAIM_PATH,
    LEDGER_ROOT,
    ROOT,
    THROTTLES_PATH,
    EntityReader,
    ledger_path,
    read_cluster,
)
from tidegate.kafka.zookeeper.tree import Delete, Operation, Rejected, SetData, ZnodeTree
from tidegate.kafka.zookeeper.writer import BatchWriter, plan_creates
from tidegate_logic.model import (
    BYTE_RATE_KEYS,
    Entity,
    LedgerRecord,
    QuotaKey,
    QuotaWrite,
    StoredQuota,
)
from tidegate_logic.reasons import Reason

# Every quota entity that Kafka has a node for, in four bulk requests however many there are.


@dataclass(frozen=True, slots=True)
class EntityWalk:
    """The entities that have a node, and the paths of nodes whose names are those of no entity."""

    entities: tuple[Entity, ...]
    unreadable: tuple[str, ...]


def walk_entities(tree: ZnodeTree) -> EntityWalk:
    """Walk users, clients and the clients of users; a node that vanishes meanwhile is left out."""
    users, clients = (
        names or [] for names in tree.children([f"{CONFIG_ROOT}/users", f"{CONFIG_ROOT}/clients"])
    )
    paths = [*(f"users/{name}" for name in users), *(f"clients/{name}" for name in clients)]
    paths += _clients_of_users(tree, users)
    return _entity_walk(paths)


def walk_client_ids(tree: ZnodeTree) -> tuple[Entity, ...]:
    """The client ids without a user that have a node; names of no entity are left out."""
    (names,) = tree.children([f"{CONFIG_ROOT}/clients"])
    return _entity_walk(f"clients/{name}" for name in names or []).entities


def _entity_walk(paths: Iterable[str]) -> EntityWalk:
    entities: list[Entity] = []
    unreadable: list[str] = []
    for path in sorted(paths):
        try:
            entities.append(entity_of_path(path))
        except ForeignContent:
            unreadable.append(f"{CONFIG_ROOT}/{path}")
    return EntityWalk(tuple(entities), tuple(unreadable))


def _clients_of_users(tree: ZnodeTree, users: Sequence[str]) -> Iterable[str]:
    nodes = tree.read([f"{CONFIG_ROOT}/users/{user}" for user in users])
    parents = [
        user
        for user, node in zip(users, nodes, strict=True)
        if node is not None and node.child_count
    ]
    below = tree.children([f"{CONFIG_ROOT}/users/{user}/clients" for user in parents])
    return [
        f"users/{user}/clients/{name}"
        for user, names in zip(parents, below, strict=True)
        for name in names or ()
    ]


MAX_WRITES = 200  # three operations each stay far below ZooKeeper's 1 MiB request
_BROKERS_PATH, _TOPICS_PATH = "/brokers/ids", "/brokers/topics"
_CLAIM_ATTEMPTS = 5


class ZooKeeperQuotaStore:
    """A QuotaStore on a tree of znodes; see the protocol for what each call promises."""

    most_writes = MAX_WRITES

    def __init__(self, tree: ZnodeTree) -> None:
        self._tree = tree
        self._reader = EntityReader(tree)
        self._client_id_reader = EntityReader(tree)
        self._ledger_names: Mapping[str, Entity] = {}  # as they were read last
        self._may_write: Callable[[], bool] = lambda: True

    @property
    def address(self) -> str:
        """See QuotaStore."""
        return self._tree.address

    def only_while(self, may_write: Callable[[], bool]) -> None:
        """See QuotaStore."""
        self._may_write = may_write

    def live_brokers(self) -> int | None:
        """See QuotaStore."""
        (names,) = self._tree.children([_BROKERS_PATH])
        return None if names is None else len(names)

    def facts(self) -> ClusterFacts:
        """See QuotaStore. Raises WriteRefused if there is no Kafka cluster at all."""
        return read_cluster(self._tree).facts

    def claim(self, wanted: Claim, replaces: str = "", *, renews: bool = False) -> Claim:
        """See QuotaStore."""
        for _ in range(_CLAIM_ATTEMPTS):
            node, root = self._tree.read([CLAIM_PATH, ROOT])
            current = None if node is None else parse_claim(node.data, f"{CLAIM_PATH} in ZooKeeper")
            released_epoch = parse_release(root.data if root is not None else None)
            ours = next_claim(
                current, wanted, replaces, renews=renews, released_epoch=released_epoch
            )
            if current == ours:
                return ours
            data = claim_to_bytes(ours)
            operations: list[Operation] = []
            if node is None:
                operations += plan_creates(self._tree, {CLAIM_PATH: data})
            else:
                operations.append(SetData(CLAIM_PATH, data, node.version))
            try:
                if self._is_done(operations):
                    return ours
            except OutcomeUnknown:
                self._tree.sync()  # what is there then decides
        raise Conflict(
            "The claim on this Kafka cluster keeps changing.",
            consequence=f"policy {wanted.policy_key} tries again in the next pass.",
        )

    def mend_ledger(
        self,
        claim: Claim,
        records: Mapping[Entity, LedgerRecord],
        expected_cluster_id: str,
        *,
        throttles: bytes | None = None,
    ) -> None:
        """See QuotaStore. It takes several transactions; without the last one no claim is there."""
        content = {ledger_path(entity): record_to_bytes(one) for entity, one in records.items()}
        if throttles is not None:
            content[THROTTLES_PATH] = throttles
        paths = list(content)
        for start in range(0, len(paths), MAX_WRITES):
            part = paths[start : start + MAX_WRITES]
            self._mend({path: content[path] for path in part}, claim, expected_cluster_id)
        self._mend({CLAIM_PATH: claim_to_bytes(claim)}, claim, expected_cluster_id)

    def _mend(self, content: Mapping[str, bytes], claim: Claim, expected_cluster_id: str) -> None:
        """Make these nodes where they are missing; a claim that is there gets the new content."""
        for _ in range(_CLAIM_ATTEMPTS):
            self._tree.sync()
            cluster = read_cluster(self._tree)
            cluster.require_writable(
                expected_cluster_id, (claim.policy_key,), replace(claim, epoch=0)
            )
            nodes = dict(zip(content, self._tree.read(list(content)), strict=True))
            missing = {path: content[path] for path, node in nodes.items() if node is None}
            operations: list[Operation] = [*cluster.checks]
            operations += plan_creates(self._tree, missing) if missing else []
            present = nodes.get(CLAIM_PATH)
            if present is not None:
                operations = [one for one in operations if one.path != CLAIM_PATH]
                operations.append(SetData(CLAIM_PATH, content[CLAIM_PATH], present.version))
            if self._is_done(operations):
                return
        raise Conflict(
            f"The cluster's state keeps changing at ZooKeeper {self._tree.address}.",
            consequence="the ledger is put back with the next pass.",
        )

    def release_claim(self, policy_key: str, policy_uid: str | None = None) -> None:
        """See QuotaStore. An unreadable ledger record counts as ours: its policy is not known."""
        node, root = self._tree.read([CLAIM_PATH, ROOT])
        current = None if node is None else parse_claim(node.data, f"{CLAIM_PATH} in ZooKeeper")
        if node is None or root is None or current is None or current.policy_key != policy_key:
            return
        if policy_uid not in (None, current.policy_uid):
            return
        if self.throttle_record() is not None:
            return
        names = self._ledger_nodes()
        entities = self.ledger_entities()
        left = [
            nodes
            for nodes in EntityReader(self._tree).read(entities).values()
            if nodes.ledger is not None
        ]
        if len(names) == len(entities) and all(
            nodes.record and nodes.record.policy_key != policy_key for nodes in left
        ):
            note = SetData(ROOT, release_to_bytes(current), root.version)
            self._is_done([Delete(CLAIM_PATH, node.version), note])

    def ledger_entities(self) -> frozenset[Entity]:
        """See QuotaStore. Leaves out nodes with foreign names; `unreadable_nodes` lists them."""
        known, found = self._ledger_names, dict[str, Entity]()
        for name in self._ledger_nodes():
            try:
                found[name] = known.get(name) or entity_of_ledger_node(name)
            except ForeignContent:
                continue
        self._ledger_names = found
        return frozenset(found.values())

    def read(self, entities: Iterable[Entity]) -> Mapping[Entity, StoredQuota]:
        """See QuotaStore."""
        return _stored(self._reader, entities)

    def read_everything(self) -> Mapping[Entity, StoredQuota]:
        """See QuotaStore."""
        return self.read([*walk_entities(self._tree).entities, *self.ledger_entities()])

    def unreadable_nodes(self) -> tuple[str, ...]:
        """See QuotaStore."""
        strange = []
        for name in self._ledger_nodes():
            try:
                entity_of_ledger_node(name)
            except ForeignContent:
                strange.append(f"{LEDGER_ROOT}/{name}")
        return (*walk_entities(self._tree).unreadable, *sorted(strange))

    def has_client_id_quotas(self) -> bool:
        """See QuotaStore."""
        quotas = _stored(self._client_id_reader, walk_client_ids(self._tree)).values()
        return any(
            stored.problem is not None or BYTE_RATE_KEYS & stored.values.keys() for stored in quotas
        )

    def write(
        self, writes: Sequence[QuotaWrite], expected_cluster_id: str, owner: Claim | None = None
    ) -> tuple[WriteOutcome, ...]:
        """See QuotaStore."""
        entities = [write.entity for write in writes]
        require_batch(writes, self.most_writes)
        writer = BatchWriter(self._tree, self._reader, expected_cluster_id, owner, self._may_write)
        writer.write(writes)
        return tuple(writer.outcomes[entity] for entity in entities)

    def brokers_without(
        self, values: Mapping[Entity, Mapping[QuotaKey, str | None]]
    ) -> Mapping[str, tuple[Entity, ...]]:
        """See QuotaStore."""
        del values
        return {}

    def throttle_record(self) -> bytes | None:
        """See QuotaStore."""
        (node,) = self._tree.read([THROTTLES_PATH])
        return None if node is None else node.data or b""

    def keep_throttle_record(
        self,
        content: bytes | None,
        expected_cluster_id: str,
        owner: Claim | None = None,
        *,
        seen: bytes | None,
    ) -> None:
        """See QuotaStore."""
        self._tree.sync()
        cluster = read_cluster(self._tree)
        keys = () if owner is None else (owner.policy_key,)
        cluster.require_writable(expected_cluster_id, keys, owner)
        (node,) = self._tree.read([THROTTLES_PATH])
        present = None if node is None else node.data or b""
        if present == content:
            return
        operations: list[Operation] = [*cluster.checks]
        if node is None:
            operations += plan_creates(self._tree, {THROTTLES_PATH: content})
        elif content is None:
            operations.append(Delete(THROTTLES_PATH, node.version))
        else:
            operations.append(SetData(THROTTLES_PATH, content, node.version))
        if present != seen or not self._is_done(operations):
            raise Conflict(
                f"{THROTTLES_PATH} or the cluster's state changed at ZooKeeper "
                f"{self._tree.address} since it was read.",
                consequence="the next pass tries again.",
            )

    def watch(self, wake: Callable[[], None]) -> None:
        """See QuotaStore."""
        self._tree.watch(wake)

    def topic_names(self) -> frozenset[str]:
        """See QuotaStore. Raises Incomplete when Kafka keeps no topics at this address."""
        (names,) = self._tree.children([_TOPICS_PATH])
        if names is None:
            raise Incomplete(
                Reason.TOPOLOGY_INCOMPLETE,
                f"{_TOPICS_PATH} does not exist at ZooKeeper {self._tree.address}.",
            )
        return frozenset(names)

    def close(self) -> None:
        """See QuotaStore."""
        self._tree.close()

    def _ledger_nodes(self) -> list[str]:
        (names,) = self._tree.children([LEDGER_ROOT])
        return names or []

    def _is_done(self, operations: Sequence[Operation]) -> bool:
        require_lease(self._may_write)
        try:
            self._tree.commit(operations)
        except Rejected:
            self._tree.sync()
            return False
        return True


def _stored(reader: EntityReader, entities: Iterable[Entity]) -> Mapping[Entity, StoredQuota]:
    return {entity: nodes.stored for entity, nodes in reader.read(entities).items()}
