"""How quota values are worded: a unit always, and no number rounded away."""

import pytest

from controller_logic.model import QuotaKey
from tidegate.commands.quantity import ago_words, byte_rate_words, exact_words, quota_words

FETCH = QuotaKey.CONSUMER_BYTE_RATE


@pytest.mark.parametrize(
    ("bytes_per_second", "words"),
    [(1024, "1024 B/s"), (9_999, "9999 B/s"), (10_000, "0.01 MB/s"), (20_971_520, "20.97 MB/s"), (2**53 - 1, "9007199254.74 MB/s")],
)
def test_byte_rates_have_a_unit_that_shows_the_number(bytes_per_second: int, words: str) -> None:
    assert byte_rate_words(bytes_per_second) == words


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        (FETCH, None, "unlimited"),
        (FETCH, "20000000", "20.00 MB/s"),
        (FETCH, "-5", '"-5"'),
        (FETCH, "", '""'),
        (FETCH, "²", '"²"'),
        (QuotaKey.REQUEST_PERCENTAGE, "12.5", "12.5 %"),
        (QuotaKey.CONTROLLER_MUTATION_RATE, 5, "5 /s"),
        (QuotaKey.REQUEST_PERCENTAGE, None, "unlimited"),
    ],
)
def test_quota_values_keep_what_kafka_holds(key: QuotaKey, value: int | str | None, words: str) -> None:
    assert quota_words(key, value) == words


@pytest.mark.parametrize(("value", "words"), [("20971520", "20.97 MB/s (20971520)"), (None, "unlimited"), ("1024", "1024 B/s")])
def test_exact_words_add_the_canonical_integer_only_where_it_was_rounded(value: str | None, words: str) -> None:
    assert exact_words(FETCH, value) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-9.0, "just now"), (40.0, "40 s ago"), (720.0, "12 min ago"), (10_800.0, "3 h ago"), (432_000.0, "5 days ago")],
)
def test_ages_are_told_in_one_unit(seconds: float, words: str) -> None:
    assert ago_words(seconds) == words
