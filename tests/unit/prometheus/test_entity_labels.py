"""Tags of Kafka's quota metrics become the entity whose bucket they name; what Kafka would not have written is no entity's."""

from __future__ import annotations

import pytest

from controller_logic.model import Entity
from tests.unit.kafka.test_names import SANITIZER
from tidegate.prometheus.clients import entity_of


@pytest.mark.parametrize(("name", "tag"), SANITIZER)
def test_a_user_is_read_back_as_kafka_spells_it(name: str, tag: str) -> None:
    assert entity_of({"user": tag}) == Entity(user=name)


@pytest.mark.parametrize("tag", ["a b", "a+b", "%41", "a%2fb", "%", "%zz", "%ff", "CN=x,O=y", "~", "\ud800"])
def test_a_user_that_kafka_would_spell_otherwise_is_no_entity(tag: str) -> None:
    assert entity_of({"user": tag}) is None


@pytest.mark.parametrize(
    ("tag", "client_id"),
    [("app-1", "app-1"), ("a b%20", "a b%20"), ('"a:b"', "a:b"), (r'"a\"b\\c\*\?\nd"', 'a"b\\c*?\nd'), ('"', '"'), (r'"a\"', r'"a\"')],
)
def test_a_client_id_is_as_it_is_and_loses_jmxs_quotes(tag: str, client_id: str) -> None:
    assert entity_of({"client_id": tag}) == Entity(client_id=client_id)


@pytest.mark.parametrize("label", ["client_id", "clientId", "clientid"])
def test_each_well_known_spelling_of_the_label_is_read(label: str) -> None:
    assert entity_of({"user": "bob", label: "app"}) == Entity("bob", "app")


def test_a_tag_that_is_empty_is_no_part_of_the_entity() -> None:
    assert entity_of({"user": "bob", "client_id": ""}) == Entity("bob")


@pytest.mark.parametrize("labels", [{}, {"user": "", "client_id": ""}, {"topic": "t"}, {"client_id": '""'}])
def test_empty_tags_are_no_entity(labels: dict[str, str]) -> None:
    assert entity_of(labels) is None


def test_a_user_called_like_the_default_is_a_user() -> None:
    entity = entity_of({"user": "%3Cdefault%3E"})
    assert entity == Entity("<default>")
    assert not entity.is_default
