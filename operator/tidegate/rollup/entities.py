"""Who was a member of which tier when: the table `entities`, and what it says of a past hour.

Tiers change, and a bill of last month is about those of last month. Each run looks at the members
as they are, and writes down what changed since the last one. The moment is that of the audit trail,
where there is one, or of the tier's last change as Kubernetes keeps it, or else that of the run.
The table is one Parquet file, which each write replaces whole: a client has a row for each
membership, from `valid_from` to `valid_to`, null = still valid.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa

from tidegate.rollup.fold.clients import Client
from tidegate.rollup.labels import BUDGET_LABEL, NO_LABELS, labels_of, labels_text, with_budget
from tidegate.rollup.schemas import OWNER
from tidegate.rollup.tables.format import Owner, UsageDamaged, decode, encode, with_owner
from tidegate.rollup.tables.store import UsageStore
from tidegate.rollup.terms.sources import PolicyMember, Trail, Written
from tidegate_logic.model import Entity, Level, Member, Tier

PATH: Final = "entities/entities.parquet"
_TIME = pa.timestamp("ms", tz="UTC")
ENTITIES: Final = pa.schema(
    [
        *OWNER,
        *(
            pa.field(name, pa.string(), nullable=False)
            for name in ("user", "client_id", "tier", "member", "level", "labels")
        ),
        pa.field("valid_from", _TIME, nullable=False),
        pa.field("valid_to", _TIME),
    ]
)


@dataclass(frozen=True, slots=True)
class Membership:
    """A client in a tier in [from_ms, to_ms); `to_ms` None = still. `labels` as in the tables."""

    client: Client
    tier: str
    member: str
    level: str
    from_ms: int
    to_ms: int | None = None
    labels: str = NO_LABELS

    @property
    def place(self) -> tuple[str, str, str]:
        """What makes another membership of it, beside its labels."""
        return self.tier, self.member, self.level

    def is_valid_at(self, at_ms: int) -> bool:
        return self.from_ms <= at_ms and (self.to_ms is None or at_ms < self.to_ms)


@dataclass(frozen=True, slots=True)
class SpecChanges:
    """When the spec of each tier changed last, by tier, and when a run looked at them before.

    What is new since then came with a change after that look. An older one has another reason, such
    as a policy that admits other members.
    """

    at_ms: Mapping[str, int] = field(default_factory=dict)
    looked_ms: int = 0

    def of(self, tier: str, seen_ms: int) -> int:
        """When what was seen of this tier came about; at the latest when it was seen."""
        changed_ms = self.at_ms.get(tier, seen_ms)
        return changed_ms if self.looked_ms < changed_ms < seen_ms else seen_ms


NO_CHANGES: Final = SpecChanges()


@dataclass(frozen=True, slots=True)
class Entities:
    """All memberships that are known, by client and time."""

    memberships: tuple[Membership, ...] = ()

    @property
    def since_ms(self) -> int | None:
        return min((one.from_ms for one in self.memberships), default=None)

    def at_end_of(self, end_ms: int, now: Sequence[PolicyMember]) -> Sequence[PolicyMember]:
        """The members at the end of an hour: a change counts for the whole hour that it is in.

        Before anything is known they are the first ones that are, of `now` where nothing is.
        A member of the same tier as now has the contract of now, every other one has none.
        """
        if self.since_ms is None:
            return now
        at_ms = max(end_ms - 1, self.since_ms)
        same = {(one.client, one.tier.key, one.member.name): one for one in now}
        return [
            _labelled(same.get((one.client, one.tier, one.member)) or _gone(one), one.labels)
            for one in self.memberships
            if one.is_valid_at(at_ms)
        ]

    def seen(
        self,
        now: Sequence[PolicyMember],
        at_ms: int,
        trail: Trail,
        changes: SpecChanges = NO_CHANGES,
    ) -> "Entities":
        """What is known once the members were looked at. Nothing is forgotten.

        `changes` count from the second look on: the first one has the members for all time before.
        """
        present = {one.client: one for one in now}
        known = self if self.memberships else Entities(tuple(_of_trail(trail, present)))
        changes = replace(changes, looked_ms=max(changes.looked_ms, self._newest_ms))
        if not self.memberships:
            changes = NO_CHANGES
        found: list[Membership] = []
        ended: dict[Client, int] = {}
        relabelled: set[Client] = set()
        for one in known.memberships:
            member = present.get(one.client)
            if one.to_ms is not None:
                ended[one.client] = one.to_ms
            elif member is None or _place(member) != one.place:
                ended[one.client] = _ended_ms(trail, one, member, at_ms, changes)
            elif _labels(member) != one.labels:
                ended[one.client] = changes.of(one.tier, at_ms)
                relabelled.add(one.client)
            else:
                del present[one.client]
                found.append(one)
                continue
            found.append(replace(one, to_ms=ended[one.client]))
        for client, member in present.items():
            from_ms = (
                ended[client]
                if client in relabelled
                else _begun_ms(trail, member, ended.get(client), at_ms, changes)
            )
            found.append(Membership(client, *_place(member), from_ms, labels=_labels(member)))
        return Entities(tuple(sorted(found, key=lambda one: (one.client, one.from_ms))))

    def in_known_budgets(self, now: Sequence[PolicyMember]) -> Sequence[PolicyMember]:
        """The members in the budgets of the last look, where it is not known which there are."""
        known = {one.client: one.labels for one in self.memberships if one.to_ms is None}
        return [
            replace(
                one,
                member=with_budget(
                    one.member, labels_of(known.get(one.client, NO_LABELS)).get(BUDGET_LABEL)
                ),
            )
            for one in now
        ]

    @property
    def _newest_ms(self) -> int:
        return max((one.to_ms or one.from_ms for one in self.memberships), default=0)


def tiers_of(members: Iterable[PolicyMember]) -> Mapping[Client, str]:
    """The tier of each client."""
    return {one.client: one.tier.key for one in members}


def _place(member: PolicyMember) -> tuple[str, str, str]:
    return member.tier.key, member.member.name, member.tier.level.value


def _labels(member: PolicyMember) -> str:
    return labels_text(member.member.labels)


def _labelled(one: PolicyMember, labels: str) -> PolicyMember:
    """The member with the labels that it had then."""
    if _labels(one) == labels:
        return one
    pairs = tuple(sorted(labels_of(labels).items()))
    return replace(one, member=replace(one.member, labels=pairs))


def _gone(one: Membership) -> PolicyMember:
    user, client_id = one.client
    member = Member(one.member, Entity(user or None, client_id or None))
    return PolicyMember(Tier(one.tier, Level(one.level), (member,)), member, one.client)


def _of_trail(trail: Trail, present: Mapping[Client, PolicyMember]) -> Iterator[Membership]:
    """The memberships that quotas were written for, each from its first write on.

    Those that still are have the labels of now, as a trail has none.
    """
    by_client: dict[Client, list[Written]] = {}
    for one in trail.written:
        client = client_of_entity(one.entity)
        if client is not None and one.tier and one.level:
            by_client.setdefault(client, []).append(one)
    for client, writes in by_client.items():
        begun = [
            write
            for number, write in enumerate(writes)
            if number == 0 or _written_place(write) != _written_place(writes[number - 1])
        ]
        for number, write in enumerate(begun):
            ends_ms = begun[number + 1].at_ms if number + 1 < len(begun) else None
            now = present.get(client)
            is_now = now is not None and _place(now) == _written_place(write)
            labels = _labels(now) if now is not None and is_now else NO_LABELS
            yield Membership(client, *_written_place(write), write.at_ms, ends_ms, labels)


def _written_place(write: Written) -> tuple[str, str, str]:
    return write.tier, write.member, write.level


def _ended_ms(
    trail: Trail,
    one: Membership,
    member: PolicyMember | None,
    at_ms: int,
    changes: SpecChanges,
) -> int:
    """When a membership ended: as the next one began, or when its tier let it go."""
    if member is None:
        return changes.of(one.tier, at_ms)
    return _begun_ms(trail, member, one.from_ms, at_ms, changes)


def _begun_ms(
    trail: Trail, member: PolicyMember, after_ms: int | None, at_ms: int, changes: SpecChanges
) -> int:
    """When the first quota was written for this membership after that time, else when its tier
    changed.
    """
    times = [
        one.at_ms
        for one in trail.written
        if _written_place(one) == _place(member)
        and client_of_entity(one.entity) == member.client
        and (after_ms is None or one.at_ms >= after_ms)
    ]
    return min(times, default=changes.of(member.tier.key, at_ms))


def client_of_entity(text: str) -> Client | None:
    """The client of `user=alice, client-id=app`, as audit lines name entities; None for others."""
    user, has_client, client_id = text.rpartition(", client-id=")
    if has_client:
        return (user.removeprefix("user="), client_id) if user.startswith("user=") else None
    if text.startswith("user="):
        return text.removeprefix("user="), ""
    return ("", text.removeprefix("client-id=")) if text.startswith("client-id=") else None


def entities_table(entities: Entities, owner: Owner) -> pa.Table:
    """The table's rows, by client and time."""
    rows = [
        {
            "user": one.client[0],
            "client_id": one.client[1],
            "tier": one.tier,
            "member": one.member,
            "level": one.level,
            "labels": one.labels,
            "valid_from": one.from_ms,
            "valid_to": one.to_ms,
        }
        for one in entities.memberships
    ]
    computed = pa.schema([field for field in ENTITIES if field.name not in OWNER.names])
    return with_owner(pa.Table.from_pylist(rows, schema=computed), owner).cast(ENTITIES)


def read_entities(store: UsageStore) -> Entities:
    """What is known; nothing if there is no table yet. Raises UsageDamaged for another file."""
    content = store.storage.read(PATH)
    if content is None:
        return Entities()
    rows = decode(content, where=PATH)
    missing = [name for name in ENTITIES.names if name not in rows.schema.names]
    if missing:
        raise UsageDamaged(f"{PATH} lacks {', '.join(missing)}: it is not a table of entities.")
    for name in ("valid_from", "valid_to"):
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(place, name, rows[name].cast(_TIME).cast(pa.int64()))
    return Entities(tuple(_memberships(rows.to_pylist())))


def _memberships(rows: Iterable[Mapping[str, object]]) -> Iterator[Membership]:
    for row in rows:
        from_ms, to_ms = row["valid_from"], row["valid_to"]
        if not isinstance(from_ms, int) or not isinstance(to_ms, int | None):
            raise UsageDamaged(f"{PATH} has a row without the time from which it is valid.")
        user, client_id, tier, member, level, labels = (
            str(row[name]) for name in ("user", "client_id", "tier", "member", "level", "labels")
        )
        yield Membership((user, client_id), tier, member, level, from_ms, to_ms, labels)


def write_entities(store: UsageStore, entities: Entities, owner: Owner) -> None:
    """Replace the table whole; a reader sees the old or the new one."""
    store.storage.write(PATH, encode(entities_table(entities, owner)))
