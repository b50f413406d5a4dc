"""One entity as it stands in ZooKeeper: its quota node and its ledger node, read together.

Whatever cannot be read safely becomes a problem of that entity, in words; the others are not held up by it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

from controller_logic.model import Entity, LedgerRecord, StoredQuota
from tidegate.errors import ForeignContent
from tidegate.kafka.ledger import ledger_path, parse_record
from tidegate.kafka.names import config_path
from tidegate.kafka.quota_json import EMPTY, QuotaContent, parse_quota
from tidegate.kafka.zookeeper.tree import Znode, ZnodeTree

# Sights of what was read lately: a pass reads every quota, and nearly all of them are what they were in the pass before.
REMEMBERED_SIGHTS = 8192


@dataclass(frozen=True)
class EntitySight:
    """The two nodes of an entity, with what they say. `problem` None = both could be read."""

    entity: Entity
    quota: Znode | None = None
    ledger: Znode | None = None
    content: QuotaContent = EMPTY
    record: LedgerRecord | None = None
    problem: str | None = None

    @cached_property
    def stored(self) -> StoredQuota:
        """The same for the control pass."""
        return StoredQuota(
            entity=self.entity,
            values={} if self.problem else self.content.quotas,
            version=self.quota.version if self.quota else None,
            ledger=self.record,
            ledger_version=self.ledger.version if self.ledger else None,
            problem=self.problem,
        )

    def is_still(self, seen: StoredQuota) -> bool:
        """Whether nothing has changed since `seen`, so that a write decided on it may go ahead.

        The contents count as well as the versions, which start at 0 again when a node is made anew. A node that holds nothing
        is the same as no node: it appears by itself when a child of the entity gets a quota.
        """
        same_version = self.stored.version == seen.version or not (self.content.settings or seen.values)
        same_ledger = self.stored.ledger_version == seen.ledger_version and self.record == seen.ledger
        return same_version and same_ledger and self.content.quotas == seen.values


def see_entities(tree: ZnodeTree, entities: Iterable[Entity]) -> dict[Entity, EntitySight]:
    """Read these entities, all in one bulk request; an entity whose name no znode can have is a problem, too."""
    sights: dict[Entity, EntitySight] = {}
    paths: list[str] = []
    named: list[Entity] = []
    for entity in dict.fromkeys(entities):
        try:
            paths += (config_path(entity), ledger_path(entity))
            named.append(entity)
        except ForeignContent as error:
            sights[entity] = EntitySight(entity, problem=error.message)
    nodes = tree.read(paths)
    sights.update((entity, _sight(entity, *nodes[2 * index : 2 * index + 2])) for index, entity in enumerate(named))
    return sights


@lru_cache(maxsize=REMEMBERED_SIGHTS)
def _sight(entity: Entity, quota: Znode | None, ledger: Znode | None) -> EntitySight:
    if quota is None and ledger is None:
        return EntitySight(entity)
    problems = []
    content, record = EMPTY, None
    try:
        content = parse_quota(quota.data, child_count=quota.child_count) if quota else content
    except ForeignContent as error:
        problems.append(f"{config_path(entity)} is left alone: {error.message}. Mend or delete the node.")
    try:
        record = parse_record(entity, ledger.data) if ledger else None
    except ForeignContent as error:
        problems.append(f"{ledger_path(entity)} is left alone: {error.message}. Mend or delete the node.")
    return EntitySight(entity, quota, ledger, content, record, " ".join(problems) or None)
