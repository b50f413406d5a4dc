"""Entities as keys: what is equal, and in which order they come."""

import pytest

from tidegate_logic.model import Default, Entity

ANYBODY = Default.DEFAULT


def test_an_entity_is_found_by_an_equal_one() -> None:
    assert {Entity("a", "b"): 1}[Entity("a", "b")] == 1


def test_a_user_called_default_is_not_the_default_user() -> None:
    assert Entity("<default>") != Entity(ANYBODY)
    assert not Entity("<default>").is_default
    assert Entity("a", ANYBODY).is_default


def test_users_come_before_their_clients_and_defaults_before_names() -> None:
    ordered = [
        Entity(None, ANYBODY),
        Entity(None, "c"),
        Entity(ANYBODY),
        Entity("a"),
        Entity("a", ANYBODY),
        Entity("a", "c"),
        Entity("b"),
    ]
    backwards = ordered[::-1]
    assert sorted(backwards, key=lambda entity: entity.sort_key) == ordered


@pytest.mark.parametrize(("user", "client_id"), [(None, None), ("", None), ("a", "")])
def test_an_entity_without_a_name_is_refused(user: str | None, client_id: str | None) -> None:
    with pytest.raises(ValueError):
        Entity(user, client_id)
