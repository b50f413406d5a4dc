"""No value can change what a selector asks."""

from __future__ import annotations

import re

import pytest

from tidegate.prometheus.queries import is_equal, is_not, literally, matches, matches_none, over_last, selector


@pytest.mark.parametrize(
    ("value", "written"), [("plain", "plain"), ('a"b', r"a\"b"), ("a\\b", r"a\\b"), ("a\nb", r"a\nb"), ('"} or up{a="', r"\"} or up{a=\"")]
)
def test_a_value_is_escaped(value: str, written: str) -> None:
    assert is_equal("user", value) == f'user="{written}"'


def test_an_expression_is_escaped_for_the_text_it_stands_in() -> None:
    assert matches("device", r"eth\d", "a") == r'device=~"eth\\d|a"'
    assert matches_none("device", ["lo", r"a\.b"]) == r'device!~"lo|a\\.b"'


@pytest.mark.parametrize("text", ["10.0.0.1:9100", "a|b", "(x)*", "[::1]", "a-b c", "^$", "\\"])
def test_a_literal_matches_itself_and_nothing_else(text: str) -> None:
    assert re.fullmatch(literally(text), text)
    assert not re.fullmatch(literally(text), text + "x")
    assert not re.fullmatch(literally("10.0.0.1"), "10a0b0c1")


def test_a_literal_escapes_nothing_that_re2_refuses_escaped() -> None:
    assert literally("a-b c_1:2/3") == "a-b c_1:2/3"


def test_matchers_that_say_nothing_are_left_out() -> None:
    assert selector(is_equal("__name__", "up"), "", is_not("broker", "")) == '{__name__="up",broker!=""}'


def test_a_range_is_whole_seconds_and_never_shorter() -> None:
    assert over_last(" sent{a='b'}\n", 60.2) == "sent{a='b'}[61s]"
