"""Kafka's eight quota levels, key by key."""

from collections.abc import Mapping

import pytest

from tests.unit.controller_logic.worlds import FETCH, PRODUCE, stored
from tidegate_logic.model import Default, Entity, QuotaKey, StoredQuota
from tidegate_logic.quotas.precedence import (
    PrecedenceLevel,
    applicable,
    candidates,
    same_bucket_fallbacks,
)

DEFAULT = Default.DEFAULT
PAIR, USER, CLIENT = Entity("u", "c"), Entity("u"), Entity(None, "c")
LEVELS = [
    (Entity("u", "c"), PAIR),
    (Entity("u", DEFAULT), PAIR),
    (Entity("u"), USER),
    (Entity(DEFAULT, "c"), PAIR),
    (Entity(DEFAULT, DEFAULT), PAIR),
    (Entity(DEFAULT), USER),
    (Entity(None, "c"), CLIENT),
    (Entity(None, DEFAULT), CLIENT),
]


def world(*entities: Entity, key: QuotaKey = FETCH) -> Mapping[Entity, StoredQuota]:
    return {
        entity: stored(entity, {key: str(place + 5000)}) for place, entity in enumerate(entities)
    }


@pytest.mark.parametrize("place", range(8))
def test_each_level_decides_when_no_stronger_one_has_the_key_and_shadows_all_weaker(
    place: int,
) -> None:
    entities = [entity for entity, _ in LEVELS[place:]]
    found = applicable(world(*entities), "u", "c", key=FETCH)
    assert found is not None
    assert (found.level, found.entity, found.bucket) == (PrecedenceLevel(place + 1), *LEVELS[place])
    assert [shadow.entity for shadow in found.shadows] == entities[1:]


def test_keys_are_resolved_apart() -> None:
    quotas = {**world(Entity("u", "c"), key=PRODUCE), **world(Entity("u"), key=FETCH)}
    fetch, produce = (applicable(quotas, "u", "c", key=key) for key in (FETCH, PRODUCE))
    assert fetch is not None
    assert produce is not None
    assert (fetch.level, produce.level) == (PrecedenceLevel.USER, PrecedenceLevel.USER_AND_CLIENT)


def test_no_level_means_unlimited() -> None:
    assert applicable(world(Entity("other"), Entity(None, "d")), "u", "c", key=FETCH) is None


def test_a_user_who_is_called_like_the_default_is_not_the_default() -> None:
    assert applicable(world(Entity("<default>")), "u", "c", key=FETCH) is None


def test_a_value_that_limits_nothing_still_decides() -> None:
    quotas = {Entity("u"): stored(Entity("u"), {FETCH: "0"}), **world(Entity(DEFAULT))}
    found = applicable(quotas, "u", "c", key=FETCH)
    assert found is not None
    assert found.text == "0"


def test_a_client_without_client_id_is_not_matched_by_named_client_ids() -> None:
    assert [level for level, _ in candidates("u", "")] == [
        PrecedenceLevel.USER_AND_DEFAULT_CLIENT,
        PrecedenceLevel.USER,
        PrecedenceLevel.DEFAULT_USER_AND_DEFAULT_CLIENT,
        PrecedenceLevel.DEFAULT_USER,
        PrecedenceLevel.DEFAULT_CLIENT,
    ]


@pytest.mark.parametrize(("entity", "bucket"), LEVELS)
def test_the_entities_below_govern_the_same_bucket_in_the_order_of_precedence(
    entity: Entity, bucket: Entity
) -> None:
    weaker = [other for other, shared in LEVELS if shared == bucket]
    expected = [
        other
        for other in weaker[weaker.index(entity) + 1 :]
        if (entity.user, other.user) != (DEFAULT, "u")
    ]
    if entity == Entity("u", DEFAULT):
        expected.remove(Entity(DEFAULT, "c"))
    assert list(same_bucket_fallbacks(entity)) == expected
