"""Quota values as Kafka stores them (exact texts), as numbers to compare, and as words for people.

Texts are kept exactly, because what is given back must be what stood there; they are compared as
numbers, because "12.50" and "12.5" are the same quota and rewriting one as the other would cost
every broker a notification.
"""

from decimal import Decimal, InvalidOperation
from math import ceil

from tidegate_logic.model import BYTE_RATE_KEYS, BYTE_RATE_OF, MAX_BYTE_RATE, QuotaKey

_MEGA = 1_000_000
_KILO = 1_000

KEY_WORDS = {
    **{key: word for word, key in BYTE_RATE_OF.items()},
    QuotaKey.REQUEST_PERCENTAGE: "request time",
    QuotaKey.CONTROLLER_MUTATION_RATE: "controller mutations",
}
"""What people call each quota key, in the order in which they are shown. The specs use them."""


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


def rate_words(bytes_per_second: int) -> str:
    """A byte rate for people: MB/s are 10^6 bytes per second, below one of them kB/s."""
    if bytes_per_second >= _MEGA:
        return f"{bytes_per_second / _MEGA:.1f} MB/s"
    return f"{bytes_per_second / _KILO:.1f} kB/s"


def number_words(key: QuotaKey, number: int) -> str:
    """One number for people, without its canonical integer."""
    return rate_words(number) if key in BYTE_RATE_KEYS else quota_words(key, str(number))


def time_words(seconds: float) -> str:
    """A moment for people, in UTC and whole seconds, never too early: `14:05:09 UTC`."""
    minutes, second = divmod(ceil(seconds), 60)
    hour, minute = divmod(minutes % (24 * 60), 60)
    return f"{hour:02d}:{minute:02d}:{second:02d} UTC"


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
