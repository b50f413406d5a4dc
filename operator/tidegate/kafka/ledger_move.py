"""Takes the ledger along when Kafka has moved from ZooKeeper to KRaft.

During the move Kafka's controllers write to both, and the brokers can still go back. Only the
controllers know when that is over. But for as long as they write to ZooKeeper, they note there how
far they have come, at least twice a second, because KRaft's log is never idle for longer
(`metadata.max.idle.interval.ms`). So the ledger moves when that note has stayed the same for a
minute in which a controller answered whenever it was asked, and is still the same at the end.
Without the answers, a quorum that has no leader for a minute would look like one that has left.

All of it moves in one transaction, or nothing. What ZooKeeper has is left as it is.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import TYPE_CHECKING

from tidegate.errors import ForeignContent, Incomplete, WriteRefused
from tidegate.kafka.claim import next_claim, wrong_cluster
from tidegate.kafka.quota_store import Claim
from tidegate.kafka.zookeeper.nodes import MIGRATION_PATH, EntityReader, read_cluster
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore
from tidegate.kafka.zookeeper.tree import ZnodeTree
from tidegate_logic.model import Entity
from tidegate_logic.reasons import Reason

if TYPE_CHECKING:
    from tidegate.kafka.adminapi.store import AdminQuotaStore

QUIET_SECONDS = 60.0
_SHOWN = 3
_THEN = {True: "now", False: "then"}


class LedgerMove:
    """The move of one cluster's ledger, tried again in each pass until it is done."""

    def __init__(
        self,
        tree: ZnodeTree,
        open_brokers: "Callable[[], AdminQuotaStore]",
        *,
        quiet_seconds: float = QUIET_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tree = tree
        self._open_brokers = open_brokers
        self._quiet_seconds = quiet_seconds
        self._monotonic = monotonic
        self._note: int | None = None
        self._since_seconds: float | None = None

    def attempt(
        self,
        wanted: Claim,
        *,
        write: bool = True,
        may_write: Callable[[], bool] = lambda: True,
    ) -> str | None:
        """Move it if the migration is over; returns what was moved, None while it is not over.

        Without `write` it only says what would be moved; `may_write` is as in
        `QuotaStore.only_while`. `wanted` becomes the claim where ZooKeeper
        has none. Raises WriteRefused for brokers of another cluster and for another policy's claim,
        ForeignContent for a record that cannot be read or a topic that has a ledger already,
        LedgerElsewhere where this one has moved before, and what the brokers' refusals are.
        """
        if not self._is_quiet():
            self._since_seconds = None
            return None
        with closing(self._open_brokers()) as brokers:
            if not brokers.is_kraft() or not brokers.has_controller():
                self._since_seconds = None
                return None
            now_seconds = self._monotonic()
            if self._since_seconds is None:
                self._since_seconds = now_seconds
            if now_seconds - self._since_seconds < self._quiet_seconds:
                return None
            brokers.only_while(may_write)
            claim, records = self._ledger_of(brokers, wanted)
            if write:
                brokers.begin_ledger(
                    claim,
                    records,
                    throttles=ZooKeeperQuotaStore(self._tree).throttle_record(),
                    only_if=self._require_same_note,
                )
            quotas = "quota" if len(records) == 1 else "quotas"
            return (
                f"The ledger of {len(records)} {quotas} {'moved' if write else 'would move'} from "
                f"ZooKeeper {self._tree.address} to the topic {brokers.topic}; from {_THEN[write]} "
                "on quotas are written through the brokers. ZooKeeper is not needed any more: "
                "remove spec.kafka.zookeeper"
            )

    def _is_quiet(self) -> bool:
        """Whether the note is the same as at the last look; the first look only notes it."""
        before, self._note = self._note, self._newest_note()
        return self._note == before

    def _newest_note(self) -> int | None:
        (node,) = self._tree.read([MIGRATION_PATH])
        return None if node is None else node.version

    def _require_same_note(self) -> None:
        self._tree.sync()
        if self._newest_note() != self._note:
            self._since_seconds = None
            raise Incomplete(
                Reason.MIGRATION_RUNNING,
                f"Kafka's controllers still write to ZooKeeper {self._tree.address}; the ledger "
                "moves when they have left it.",
            )

    def _ledger_of(
        self, brokers: "AdminQuotaStore", wanted: Claim
    ) -> tuple[Claim, Mapping[Entity, bytes]]:
        found, now = read_cluster(self._tree), brokers.facts()
        if found.cluster_id != now.cluster_id:
            raise WriteRefused(
                Reason.WRONG_CLUSTER,
                f"{wrong_cluster(brokers.address, now.cluster_id, found.cluster_id)} as ZooKeeper "
                f"{self._tree.address} says. The ledger stays where it is.",
                advice="Correct spec.kafka.bootstrapServers or spec.kafka.zookeeper.connect.",
            )
        claim = found.claim or next_claim(None, wanted, "")
        if not claim.is_of(wanted.policy_key, wanted.policy_uid):
            raise WriteRefused(
                Reason.CLAIMED_ELSEWHERE,
                f"The ledger in ZooKeeper {self._tree.address} is that of policy "
                f"{claim.policy_key} with uid {claim.policy_uid}; it stays where it is.",
            )
        store = ZooKeeperQuotaStore(self._tree)
        strange = [path for path in store.unreadable_nodes() if path.startswith("/tidegate")]
        nodes = EntityReader(self._tree).read(store.ledger_entities())
        strange += [
            str(entity)
            for entity, one in nodes.items()
            if one.ledger is not None and one.record is None
        ]
        if strange:
            raise ForeignContent(
                f"The ledger in ZooKeeper {self._tree.address} has {len(strange)} records that "
                f"cannot be read ({', '.join(sorted(strange)[:_SHOWN])}), so it stays where it is. "
                "`tidegate explain` says what is wrong with each; correct or delete them."
            )
        return claim, {
            entity: one.ledger.data
            for entity, one in nodes.items()
            if one.ledger is not None and one.ledger.data is not None
        }
