"""How quota values are worded in tables: a unit always, and what limits nothing is called so."""

import pytest

from controller_logic.model import QuotaKey
from tidegate.commands.output import KEY_WORDS, ago_words, short_words

FETCH = QuotaKey.CONSUMER_BYTE_RATE


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        (FETCH, None, "unlimited"),
        (FETCH, "20000000", "20.0 MB/s"),
        (FETCH, 1024, "1.0 kB/s"),
        (FETCH, "0", "unlimited"),
        (FETCH, "-5", "unlimited"),
        (FETCH, "nonsense", "unlimited"),
        (QuotaKey.REQUEST_PERCENTAGE, "12.5", "12.5 %"),
        (QuotaKey.CONTROLLER_MUTATION_RATE, 5, "5 mutations/s"),
        (QuotaKey.REQUEST_PERCENTAGE, None, "unlimited"),
    ],
)
def test_quota_values_have_a_unit(key: QuotaKey, value: int | str | None, words: str) -> None:
    assert short_words(key, value) == words


def test_every_quota_key_has_a_word_of_its_own() -> None:
    assert set(KEY_WORDS) == set(QuotaKey)
    assert len(set(KEY_WORDS.values())) == len(KEY_WORDS)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-9.0, "just now"), (40.0, "40 s ago"), (720.0, "12 min ago"), (10_800.0, "3 h ago"), (432_000.0, "5 days ago")],
)
def test_ages_are_told_in_one_unit(seconds: float, words: str) -> None:
    assert ago_words(seconds) == words
