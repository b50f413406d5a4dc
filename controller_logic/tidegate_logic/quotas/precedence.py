"""Which of Kafka's eight quota levels decides for a user and a client id: the heart of `explain`.

Kafka resolves every quota key for itself, so one client may have its produce rate from one level
and its fetch rate from another. The order and the sharing are those of kafka-quotas 3.1. Nothing
here knows who wrote a quota.
"""

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from enum import IntEnum

from tidegate_logic.model import (
    BYTE_RATE_KEYS,
    Default,
    Entity,
    LedgerEntry,
    Policy,
    QuotaKey,
    StoredQuota,
)


class PrecedenceLevel(IntEnum):
    """Kafka's levels, the strongest first."""

    USER_AND_CLIENT = 1
    USER_AND_DEFAULT_CLIENT = 2
    USER = 3
    DEFAULT_USER_AND_CLIENT = 4
    DEFAULT_USER_AND_DEFAULT_CLIENT = 5
    DEFAULT_USER = 6
    CLIENT = 7
    DEFAULT_CLIENT = 8


_DEFAULT = Default.DEFAULT
_USER_LEVELS = frozenset({PrecedenceLevel.USER, PrecedenceLevel.DEFAULT_USER})
_CLIENT_LEVELS = frozenset({PrecedenceLevel.CLIENT, PrecedenceLevel.DEFAULT_CLIENT})


@dataclass(frozen=True, slots=True)
class Shadowed:
    """A quota that does not count, because a stronger level has the key too."""

    level: PrecedenceLevel
    entity: Entity
    text: str


@dataclass(frozen=True, slots=True)
class Applicable:
    """The quota that decides one key for one client, with the bucket it shares on every broker.

    `bucket` says whose traffic is counted together: all connections of the same user and client id,
    of the same user, or of the same client id. `shadows` are the weaker levels that hold the key,
    the strongest first.
    """

    level: PrecedenceLevel
    entity: Entity
    text: str
    bucket: Entity
    shadows: tuple[Shadowed, ...]


def candidates(user: str, client_id: str) -> Iterator[tuple[PrecedenceLevel, Entity]]:
    """The eight entities that could decide, the strongest first.

    An unauthenticated client's user is `ANONYMOUS`. A client without a client id (an empty one) can
    only be matched by levels that do not name it.
    """
    default = Default.DEFAULT
    client = client_id or None
    if client is not None:
        yield PrecedenceLevel.USER_AND_CLIENT, Entity(user, client)
    yield PrecedenceLevel.USER_AND_DEFAULT_CLIENT, Entity(user, default)
    yield PrecedenceLevel.USER, Entity(user)
    if client is not None:
        yield PrecedenceLevel.DEFAULT_USER_AND_CLIENT, Entity(default, client)
    yield PrecedenceLevel.DEFAULT_USER_AND_DEFAULT_CLIENT, Entity(default, default)
    yield PrecedenceLevel.DEFAULT_USER, Entity(default)
    if client is not None:
        yield PrecedenceLevel.CLIENT, Entity(None, client)
    yield PrecedenceLevel.DEFAULT_CLIENT, Entity(None, default)


def applicable(
    quotas: Mapping[Entity, StoredQuota], user: str, client_id: str, *, key: QuotaKey
) -> Applicable | None:
    """The quota that decides `key` for this client; None = no level has it, so it is unlimited.

    Entities that `quotas` lacks count as having no quota, so pass everything that the store holds.
    A text that limits nothing (such as "0") still decides: Kafka takes the strongest level that has
    the key, whatever its value.
    """
    found = [
        (level, entity, text)
        for level, entity in candidates(user, client_id)
        if (stored := quotas.get(entity)) is not None
        and (text := stored.values.get(key)) is not None
    ]
    if not found:
        return None
    level, entity, text = found[0]
    shadows = tuple(Shadowed(weaker, hidden, value) for weaker, hidden, value in found[1:])
    return Applicable(level, entity, text, bucket(level, user, client_id), shadows)


def bucket(level: PrecedenceLevel, user: str, client_id: str) -> Entity:
    """Whose traffic shares one bucket per broker when `level` decides.

    A default level still gives each name its own. Kafka tags an empty client id like any other;
    here it becomes the user alone, since an entity names no empty part.
    """
    if level in _USER_LEVELS or (not client_id and level not in _CLIENT_LEVELS):
        return Entity(user)
    if level in _CLIENT_LEVELS:
        return Entity(None, client_id) if client_id else Entity(None, Default.DEFAULT)
    return Entity(user, client_id)


def same_bucket_fallbacks(entity: Entity) -> tuple[Entity, ...]:
    """The default entities that would govern the same bucket without `entity`, strongest first.

    A user falls back on the default user, a client id on the default client id, a pair on the pairs
    with a default in them. Other weaker levels count in another bucket, which starts empty, so they
    say nothing about bytes already sent.
    """
    default = Default.DEFAULT
    user, client = entity.user, entity.client_id
    if client is None:
        chain: tuple[Entity, ...] = (Entity(default),)
    elif user is None:
        chain = (Entity(None, default),)
    else:
        chain = (Entity(user, default), Entity(default, client), Entity(default, default))
    return tuple(
        weaker for weaker in dict.fromkeys(chain) if weaker != entity and _weaker(weaker, entity)
    )


def _weaker(one: Entity, other: Entity) -> bool:
    """Whether `one` matches more clients: defaults where `other` has names, and no new names."""
    pairs = ((one.user, other.user), (one.client_id, other.client_id))
    return all(mine == theirs or mine is Default.DEFAULT for mine, theirs in pairs)


# What Kafka's default entities say for a bucket while its own entity has no quota.
#
# A user without a quota of its own is held to the default user's quota in the very same bucket, so
# its first quota may be a lowering, and giving its quota back may be one too. Only defaults that
# the observation holds are known; a default that no one manages and that was not read counts as
# absent.


@dataclass(frozen=True, slots=True)
class InheritedQuota:
    """A default entity's byte rate that governs a bucket whose own entity has no quota."""

    text: str
    entry: LedgerEntry | None = None


_NOTHING: Mapping[QuotaKey, InheritedQuota] = {}


class DefaultEntityQuotas:
    """The default entities of one pass, as they will be once it has restored what leaves.

    A default that is restored in the same pass counts with the value that it returns to: it is
    written before the users are. `kept` gives the keys of an entity that this pass keeps.
    """

    def __init__(
        self,
        quotas: Mapping[Entity, StoredQuota],
        policy: Policy,
        kept: Callable[[Entity], Set[QuotaKey]],
    ) -> None:
        self.defaults = {
            entity: known
            for entity, stored in quotas.items()
            if entity.is_default and (known := _byte_rates(stored, policy, kept(entity)))
        }

    def __bool__(self) -> bool:
        return bool(self.defaults)

    def below(self, entity: Entity) -> Mapping[QuotaKey, InheritedQuota]:
        """Per byte-rate key, the strongest default for the bucket; keys without one are absent."""
        if not self.defaults:
            return _NOTHING
        found: dict[QuotaKey, InheritedQuota] = {}
        for weaker in same_bucket_fallbacks(entity):
            for key, inherited in self.defaults.get(weaker, _NOTHING).items():
                found.setdefault(key, inherited)
        return found


def _byte_rates(
    stored: StoredQuota, policy: Policy, kept: Set[QuotaKey]
) -> Mapping[QuotaKey, InheritedQuota]:
    entries = stored.entries_of(policy)
    known = {}
    for key in BYTE_RATE_KEYS:
        entry = entries.get(key)
        text = entry.before if entry is not None and key not in kept else stored.values.get(key)
        if text is not None:
            known[key] = InheritedQuota(text, entry)
    return known
