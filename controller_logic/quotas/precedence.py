"""Which of Kafka's eight quota levels decides for a user and a client id: the heart of `explain`.

Kafka resolves every quota key for itself, so one client may have its produce rate from one level and its fetch rate
from another. The order and the sharing are those of kafka-quotas 3.1. Nothing here knows who wrote a quota.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

from controller_logic.model import Default, Entity, QuotaKey, StoredQuota


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


_USER_LEVELS = frozenset({PrecedenceLevel.USER, PrecedenceLevel.DEFAULT_USER})
_CLIENT_LEVELS = frozenset({PrecedenceLevel.CLIENT, PrecedenceLevel.DEFAULT_CLIENT})


@dataclass(frozen=True, slots=True)
class Shadowed:
    """A quota that exists for the key but does not count, because a stronger level has the key too."""

    level: PrecedenceLevel
    entity: Entity
    text: str


@dataclass(frozen=True, slots=True)
class Applicable:
    """The quota that decides one key for one client, with the bucket it shares on every broker.

    `bucket` says whose traffic is counted together: all connections of the same user and client id, of the same user,
    or of the same client id. `shadows` are the weaker levels that hold the key, the strongest first.
    """

    level: PrecedenceLevel
    entity: Entity
    text: str
    bucket: Entity
    shadows: tuple[Shadowed, ...]


def candidates(user: str, client_id: str) -> Iterator[tuple[PrecedenceLevel, Entity]]:
    """The eight entities that could decide, the strongest first. An unauthenticated client's user is `ANONYMOUS`.

    A client without a client id (an empty one) can only be matched by levels that do not name it.
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


def applicable(quotas: Mapping[Entity, StoredQuota], user: str, client_id: str, *, key: QuotaKey) -> Applicable | None:
    """The quota that decides `key` for this client, or None when no level has the key: then Kafka does not limit it.

    Entities that `quotas` lacks count as having no quota, so pass everything that the store holds. A text that limits
    nothing (such as "0") still decides: Kafka takes the strongest level that has the key, whatever its value.
    """
    found = [
        (level, entity, text)
        for level, entity in candidates(user, client_id)
        if (stored := quotas.get(entity)) is not None and (text := stored.values.get(key)) is not None
    ]
    if not found:
        return None
    level, entity, text = found[0]
    shadows = tuple(Shadowed(weaker, hidden, value) for weaker, hidden, value in found[1:])
    return Applicable(level, entity, text, bucket(level, user, client_id), shadows)


def bucket(level: PrecedenceLevel, user: str, client_id: str) -> Entity:
    """Whose traffic shares one bucket per broker when `level` decides; a default level still gives each name its own.

    Kafka tags an empty client id like any other; here it becomes the user alone, since an entity names no empty part.
    """
    if level in _USER_LEVELS or (not client_id and level not in _CLIENT_LEVELS):
        return Entity(user)
    if level in _CLIENT_LEVELS:
        return Entity(None, client_id) if client_id else Entity(None, Default.DEFAULT)
    return Entity(user, client_id)


def same_bucket_fallbacks(entity: Entity) -> tuple[Entity, ...]:
    """The weaker default entities whose quota would govern the very same bucket if `entity` had none, strongest first.

    A user falls back on the default user, a client id on the default client id, a pair on the pairs with a default in them.
    Other weaker levels count in another bucket, which starts empty, so they say nothing about bytes already sent.
    """
    default = Default.DEFAULT
    user, client = entity.user, entity.client_id
    if client is None:
        chain: tuple[Entity, ...] = (Entity(default),)
    elif user is None:
        chain = (Entity(None, default),)
    else:
        chain = (Entity(user, default), Entity(default, client), Entity(default, default))
    return tuple(weaker for weaker in dict.fromkeys(chain) if weaker != entity and _weaker(weaker, entity))


def _weaker(one: Entity, other: Entity) -> bool:
    """Whether `one` matches more clients than `other`: it has defaults where the other has names, and no new names."""
    pairs = ((one.user, other.user), (one.client_id, other.client_id))
    return all(mine == theirs or mine is Default.DEFAULT for mine, theirs in pairs)
