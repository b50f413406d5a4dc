"""Quota znodes are read strictly and written so that nothing but our keys changes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller_logic.model import QuotaKey
from tidegate.errors import ForeignContent
from tidegate.kafka.names import parse_quota

PRODUCE = QuotaKey.PRODUCER_BYTE_RATE


@pytest.mark.parametrize(
    ("data", "child_count"),
    [(None, 0), (None, 1), (b"", 1), (b'{"version":1,"config":{}}', 0), (b' { "config" : { } , "version" : 1 } ', 0)],
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


@given(st.dictionaries(st.text(min_size=1).filter(lambda key: key not in set(QuotaKey)), st.text(), max_size=6), st.booleans())
def test_any_foreign_settings_keep_their_tokens_and_order(foreign: dict[str, str], ascii_only: bool) -> None:
    text = json.dumps({"version": 1, "config": foreign}, ensure_ascii=ascii_only, separators=(",", ":"))
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
