"""Names and quota znodes as Kafka writes them: spelled by its Sanitizer, read strictly, changed
only in our keys.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import ForeignContent
from tidegate.kafka.quota_node import (
    config_path,
    decode_name,
    encode_name,
    entity_of_ledger_node,
    entity_of_path,
    entity_path,
    ledger_node,
    parse_quota,
)
from tidegate_logic.model import Default, Entity, QuotaKey

# --- names ----------------------------------------------------------------------------------------
# Names are spelled exactly as Kafka's Sanitizer spells them (vectors computed with Kafka's own
# class), and read back strictly.


SANITIZER = [
    ("alice", "alice"),
    ("my.client-id_1", "my.client-id_1"),
    ("a b", "a%20b"),
    ("a+b", "a%2Bb"),
    ("a*b", "a%2Ab"),
    ("100%", "100%25"),
    ("a%20b", "a%2520b"),
    ("a/b", "a%2Fb"),
    ("<default>", "%3Cdefault%3E"),
    ("~tilde", "%7Etilde"),
    ("(paren)!'$&,;=:@", "%28paren%29%21%27%24%26%2C%3B%3D%3A%40"),
    ("CN=kafka,OU=x,O=y", "CN%3Dkafka%2COU%3Dx%2CO%3Dy"),
    ("system:serviceaccount:ns:sa", "system%3Aserviceaccount%3Ans%3Asa"),
    ("用户1", "%E7%94%A8%E6%88%B71"),
    ("é", "%C3%A9"),
    ("\U0001f600", "%F0%9F%98%80"),
    ('"q"', "%22q%22"),
    ("\t\n", "%09%0A"),
]


@pytest.mark.parametrize(("name", "node"), SANITIZER)
def test_names_are_encoded_as_kafka_does_and_decode_to_themselves(name: str, node: str) -> None:
    assert encode_name(name) == node
    assert decode_name(node) == name


@pytest.mark.parametrize("name", ["", ".", "..", "\ud800"])
def test_names_that_no_znode_can_have_are_refused(name: str) -> None:
    with pytest.raises(ForeignContent):
        encode_name(name)


@pytest.mark.parametrize(
    "node", ["", ".", "a b", "a+b", "a%zz", "a%2", "%41", "%2f", "%ff", "a~b", "a/b"]
)
def test_node_names_that_do_not_come_from_encoding_are_foreign(node: str) -> None:
    with pytest.raises(ForeignContent):
        decode_name(node)


ENTITIES = [
    (Entity("alice"), "users/alice"),
    (Entity(Default.DEFAULT), "users/<default>"),
    (Entity("<default>"), "users/%3Cdefault%3E"),
    (Entity("a/b", Default.DEFAULT), "users/a%2Fb/clients/<default>"),
    (Entity(Default.DEFAULT, "c 1"), "users/<default>/clients/c%201"),
    (Entity(None, Default.DEFAULT), "clients/<default>"),
    (Entity(None, "clients"), "clients/clients"),
]


@pytest.mark.parametrize(("entity", "path"), ENTITIES)
def test_every_entity_has_one_path_and_one_ledger_node(entity: Entity, path: str) -> None:
    assert (entity_path(entity), config_path(entity)) == (path, f"/config/{path}")
    assert entity_of_path(path) == entity
    assert "/" not in ledger_node(entity)
    assert entity_of_ledger_node(ledger_node(entity)) == entity


def test_no_two_entities_share_a_ledger_node() -> None:
    assert len({ledger_node(entity) for entity, _ in ENTITIES}) == len(ENTITIES)


@pytest.mark.parametrize(
    "path",
    ["users", "users/a/clients", "users/a/other/b", "topics/t", "brokers/1", "users/a/clients/b/c"],
)
def test_other_paths_are_of_no_entity(path: str) -> None:
    with pytest.raises(ForeignContent):
        entity_of_path(path)


# --- quota znodes ---------------------------------------------------------------------------------
# Quota znodes are read strictly and written so that nothing but our keys changes.


PRODUCE = QuotaKey.PRODUCER_BYTE_RATE


@pytest.mark.parametrize(
    ("data", "child_count"),
    [
        (None, 0),
        (None, 1),
        (b"", 1),
        (b'{"version":1,"config":{}}', 0),
        (b' { "config" : { } , "version" : 1 } ', 0),
    ],
)
def test_what_holds_nothing_reads_as_nothing(data: bytes | None, child_count: int) -> None:
    assert parse_quota(data, child_count=child_count).settings == ()


@pytest.mark.parametrize("text", ["0", "-5", "007", "9223372036854775807"])
def test_texts_that_brokers_parse_are_read_exactly(text: str) -> None:
    content = parse_quota(f'{{"version":1,"config":{{"producer_byte_rate":"{text}"}}}}'.encode())
    assert content.quotas == {PRODUCE: text}


@pytest.mark.parametrize("text", ["1e6", "1.5", " 5", "", "+5", "9223372036854775808", "abc"])
def test_texts_that_stop_brokers_are_foreign(text: str) -> None:
    with pytest.raises(ForeignContent, match="producer_byte_rate"):
        parse_quota(f'{{"version":1,"config":{{"producer_byte_rate":"{text}"}}}}'.encode())


def test_an_equal_value_is_no_change() -> None:
    content = parse_quota(b'{"version":1,"config":{"producer_byte_rate":"2048"}}')
    assert content.changed({PRODUCE: "2048", QuotaKey.CONSUMER_BYTE_RATE: None}) == content


@given(
    st.dictionaries(
        st.text(min_size=1).filter(lambda key: key not in set(QuotaKey)), st.text(), max_size=6
    ),
    st.booleans(),
)
def test_any_foreign_settings_keep_their_tokens_and_order(
    foreign: dict[str, str], ascii_only: bool
) -> None:
    text = json.dumps(
        {"version": 1, "config": foreign}, ensure_ascii=ascii_only, separators=(",", ":")
    )
    try:
        data = text.encode()
    except UnicodeEncodeError:
        data = json.dumps({"version": 1, "config": foreign}, separators=(",", ":")).encode()
    with_ours = parse_quota(data).changed({PRODUCE: "2048"}).to_bytes()
    assert json.loads(with_ours)["config"] == {**foreign, "producer_byte_rate": "2048"}
    assert parse_quota(with_ours).changed({PRODUCE: None}).to_bytes() == data


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        content = parse_quota(data)
    except ForeignContent:
        return
    assert parse_quota(content.to_bytes()).quotas == content.quotas
