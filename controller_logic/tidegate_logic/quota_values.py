"""Quota values as Kafka stores them (exact texts), as numbers to compare, and as words for people.

Texts are kept exactly, so that a restored quota is what stood there before. They are compared as
numbers, because "12.50" and "12.5" are the same quota and rewriting one as the other would cost
every broker a notification.
"""

from decimal import Decimal, InvalidOperation
from functools import lru_cache
from math import ceil

from tidegate_logic.model import BYTE_RATE_KEYS, BYTE_RATE_OF, MAX_BYTE_RATE, QuotaKey
from tidegate_logic.words import rate_words

KEY_WORDS = {
    **{key: word for word, key in BYTE_RATE_OF.items()},
    QuotaKey.REQUEST_PERCENTAGE: "request time",
    QuotaKey.CONTROLLER_MUTATION_RATE: "controller mutations",
}
"""What people call each quota key, in the order in which they are shown. The specs use them."""

KEY_ORDER = {key: place for place, key in enumerate(KEY_WORDS)}


@lru_cache(maxsize=1 << 16)
def number_of(text: str | None) -> Decimal | None:
    """The number that a text spells; None for an absent quota and for no finite number."""
    if text is None:
        return None
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def same_quota(one: str | None, other: str | None) -> bool:
    """Whether two texts are the same quota: the same text, both absent, or the same number."""
    if one == other:
        return True
    number = number_of(one)
    return number is not None and number == number_of(other)


def enforced_rate(text: str | None) -> int | None:
    """The byte rate that a broker enforces for this text, in whole bytes per second.

    None = nothing is limited: the quota is absent, the number is one that Kafka's arithmetic never
    throttles on (zero and below, kafka-quotas 4.6), or it is beyond every NIC (9 PB/s, what
    `contracts/desired.py` writes so that brokers count).
    """
    number = number_of(text)
    return ceil(number) if number is not None and 0 < number < MAX_BYTE_RATE else None


def short_words(key: QuotaKey, value: int | str | None) -> str:
    """A value with unit, as a cell: `20 MB/s`. None, or text without a limit, is `unlimited`."""
    text = None if value is None else str(value)
    if key not in BYTE_RATE_KEYS:
        return quota_words(key, text)
    rate = enforced_rate(text)
    return "unlimited" if rate is None else rate_words(rate)


def quota_words(key: QuotaKey, text: str | None) -> str:
    """One stored value for people; byte rates with the exact text in parentheses."""
    if text is None:
        return "unlimited"
    if key in BYTE_RATE_KEYS:
        rate = enforced_rate(text)
        if rate is not None:
            return f"{rate_words(rate)} ({text} B/s)"
        return (
            f"metered, never binding ({text} B/s)"
            if same_quota(text, str(MAX_BYTE_RATE))
            else f"unlimited ({text!r})"
        )
    unit = "%" if key is QuotaKey.REQUEST_PERCENTAGE else "mutations/s"
    return f"{text} {unit}"
