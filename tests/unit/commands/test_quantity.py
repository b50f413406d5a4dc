"""How quota values are worded in tables: a unit always, and what limits nothing is called so."""

from collections.abc import Callable

import pytest

from controller_logic.model import QuotaKey
from tests.goldens.golden import numbers
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


@pytest.mark.parametrize(("seconds", "amount"), [(-9.0, set()), (40.0, {40}), (720.0, {12}), (10_800.0, {3}), (432_000.0, {5})])
def test_ages_have_one_unit(seconds: float, amount: set[float]) -> None:
    assert numbers(ago_words(seconds)) == amount


def test_ages_read_like_this(golden: Callable[[str], None]) -> None:
    golden("\n".join(ago_words(seconds) for seconds in (-9.0, 40.0, 720.0, 10_800.0, 432_000.0)))
