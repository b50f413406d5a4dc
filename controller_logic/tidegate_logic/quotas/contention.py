"""What another writer keeps changing: how long it is left alone, and how people end that at once.

No writer wins a fight over a quota, and each write notifies every broker. A quota that was put back
twice and is changed again is left alone for 60 s, then put back once more; when that does not last
either, for 2, 4 and then 8 minutes. After 8 minutes without another change all is forgotten. So a
client is at the other writer's value for 8 minutes at most, once that writer has stopped.

The memory is the process's own. A restarted operator, or a replica that takes over, puts a quota
back twice more and then leaves it alone for 60 s again.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from shlex import quote

from tidegate_logic.contracts.targets import Promise
from tidegate_logic.model import Entity, QuotaKey, StoredQuota
from tidegate_logic.quota_values import KEY_WORDS, quota_words, same_quota
from tidegate_logic.value import value
from tidegate_logic.words import clock_words

REPAIRS_BEFORE_BACKING_OFF = 2
FIRST_BACK_OFF_SECONDS = 60.0
LONGEST_BACK_OFF_SECONDS = 480.0
CALM_SECONDS = 480.0  # without another change; then the next one is the first again
_ROUNDING_SECONDS = 1.0

RESYNC = "tidegate.io/resync"  # the annotation that ends it at once
_SHOWN_CHARACTERS = 120


# what an entity is promised, before load lowers it; None = it is not managed
ContractOf = Callable[[Entity], Promise | None]


@dataclass(frozen=True, slots=True)
class Repairs:
    """How often an entity was put back after another writer, and until when we leave it alone."""

    count: int
    last_at_seconds: float
    suspended_until_seconds: float = 0.0


@value(frozen=True, slots=True)
class Contention:
    """One entity that is left alone, from `since_seconds` until `until_seconds`.

    `values` are the keys that another writer changed: what stands now, and what should: the
    contract, or the throttle that was in its place. `cause` is who does it and what to set, where
    that is known; "" = it is not.
    """

    entity: Entity
    values: tuple[tuple[QuotaKey, str | None, str | None], ...]
    repairs: int
    since_seconds: float
    until_seconds: float
    cause: str = ""

    @property
    def words(self) -> str:
        """The values, theirs and ours, and from when to when it is left alone, for people."""
        values = " and ".join(
            f"{KEY_WORDS[key]} is {quota_words(key, theirs)}, "
            f"Tidegate's is {quota_words(key, ours)}"
            for key, theirs, ours in self.values
        )
        return (
            f"{values} per broker; put back {self.repairs} times, left alone from "
            f"{clock_words(self.since_seconds)} until {clock_words(self.until_seconds)} UTC"
        )

    def ended_by(self, policy_key: str) -> str:
        """Who it is, where that is known, and what ends it at once."""
        if self.cause:
            return f"{self.cause}. When that is done: {self.command(policy_key)}"
        return f"Kafka does not record who. To end it at once: {self.command(policy_key)}"

    def command(self, policy_key: str) -> str:
        """The command that has this entity compared again at once."""
        return resync_command(policy_key, self.entity)


def resync_command(policy_key: str, entity: Entity | None = None) -> str:
    """The command that ends it for one entity, or for all of them."""
    named = "" if entity is None else f" --entity {quote(str(entity))}"
    return f"tidegate resync {policy_key}{named}"


def back_off_seconds(repairs: int) -> float:
    """How long to leave it alone: 60 s after two repairs, doubling, at most 8 minutes."""
    doublings = min(max(0, repairs - REPAIRS_BEFORE_BACKING_OFF), 10)
    return float(min(FIRST_BACK_OFF_SECONDS * 2**doublings, LONGEST_BACK_OFF_SECONDS))


def repaired(repairs: Repairs | None, *, now_seconds: float) -> Repairs:
    """What to remember after one more repair was really written."""
    return Repairs(1 if repairs is None else repairs.count + 1, now_seconds)


def reviewed(repairs: Repairs, *, disturbed: bool, now_seconds: float) -> Repairs | None:
    """What to remember of an entity's repairs now; None = nothing.

    A change after the second repair starts a suspension. When that is over one repair is allowed,
    and a change after it starts a longer one. What lies in the future was stamped by a wrong clock.
    """
    calm_seconds = now_seconds - max(repairs.last_at_seconds, repairs.suspended_until_seconds)
    if not -LONGEST_BACK_OFF_SECONDS - _ROUNDING_SECONDS <= calm_seconds < CALM_SECONDS:
        return None
    few = repairs.count < REPAIRS_BEFORE_BACKING_OFF
    suspended_already = repairs.suspended_until_seconds > repairs.last_at_seconds
    if few or not disturbed or suspended_already:
        return repairs
    return Repairs(
        repairs.count, repairs.last_at_seconds, now_seconds + back_off_seconds(repairs.count)
    )


def review(
    before: Mapping[Entity, Repairs],
    contract_of: ContractOf,
    quotas: Mapping[Entity, StoredQuota],
    *,
    now_seconds: float,
) -> dict[Entity, Repairs]:
    """What to remember of every entity that was put back; what is not ours any more is dropped."""
    kept: dict[Entity, Repairs] = {}
    for entity, repairs in before.items():
        stored, promise = quotas.get(entity), contract_of(entity)
        if promise is None:
            continue
        if stored is None:  # not read now
            kept[entity] = repairs
            continue
        disturbed = bool(_changed(stored, promise))
        after = reviewed(repairs, disturbed=disturbed, now_seconds=now_seconds)
        if after is not None:
            kept[entity] = after
    return kept


def left_alone(
    repairs: Mapping[Entity, Repairs],
    contract_of: ContractOf,
    quotas: Mapping[Entity, StoredQuota],
    *,
    now_seconds: float,
) -> dict[Entity, Contention]:
    """The entities that are left alone now, those that load would throttle or raise too.

    `repairs` are as `review` gives them.
    """
    found: dict[Entity, Contention] = {}
    for entity, one in repairs.items():
        stored, promise = quotas.get(entity), contract_of(entity)
        if now_seconds < one.suspended_until_seconds and promise is not None and stored:
            changed = _changed(stored, promise)
            if changed:
                found[entity] = Contention(
                    entity,
                    changed,
                    one.count,
                    one.suspended_until_seconds - back_off_seconds(one.count),
                    one.suspended_until_seconds,
                )
    return found


def _changed(
    stored: StoredQuota, contract: Promise
) -> tuple[tuple[QuotaKey, str | None, str | None], ...]:
    """The keys that another writer changed, with what stands now and what should.

    A contract that someone else writes does no harm; where a throttle should be it does.
    """
    if stored.ledger is None or stored.problem is not None:
        return ()
    found: list[tuple[QuotaKey, str | None, str | None]] = []
    for key, entry in stored.ledger.entries.items():
        seen, target = stored.values.get(key), contract.targets.get(key)
        if same_quota(entry.written, seen):
            continue
        if entry.of_contract is not None:
            found.append((key, seen, entry.written))
        elif target is not None and not same_quota(target.text, seen):
            found.append((key, seen, target.text))
    return tuple(found)


def resynced(
    repairs: Mapping[Entity, Repairs], request: str
) -> tuple[Mapping[Entity, Repairs], frozenset[Entity]]:
    """What is remembered after the annotation's value `request`, and whom it concerned.

    A value that goes on with an entity, as in `1 user=alice`, is for that one only.
    """
    named = named_entity(request)
    ended = frozenset(entity for entity in repairs if named in ("", str(entity)))
    return {entity: one for entity, one in repairs.items() if entity not in ended}, ended


def named_entity(request: str) -> str:
    """The entity that the annotation's value names after its first word; empty = all of them."""
    _, _, rest = request.strip().partition(" ")
    return rest.strip() if rest.strip().startswith(("user=", "client-id=")) else ""


def resynced_words(request: str, ended: Collection[Entity]) -> str:
    """The Event of a resync."""
    names = ", ".join(sorted(map(str, ended))[:5])
    more = f" and {len(ended) - 5} more" if len(ended) > 5 else ""
    named = named_entity(request)
    whom = f" for {named}" if named else ""
    what = (
        f"Reapplied immediately, and no longer left alone: {names}{more}"
        if ended
        else "No repair was remembered, so nothing was left alone"
    )
    shown = request.strip()[:_SHOWN_CHARACTERS]
    return f"Resynced{whom} once, as the annotation {RESYNC}={shown} requests. {what}"
