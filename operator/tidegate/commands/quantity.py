"""Short words for tables and sentences: values with a unit, ages, and the order of quota keys.

It only words numbers that were decided elsewhere. Where every digit counts, `controller_logic.quotas.values.quota_words` is used,
which has the canonical integer beside the words.
"""

from controller_logic.model import BYTE_RATE_KEYS, QuotaKey
from controller_logic.quotas.values import KEY_WORDS, enforced_rate, quota_words, rate_words

KEY_ORDER = {key: place for place, key in enumerate(KEY_WORDS)}


def short_words(key: QuotaKey, value: int | str | None) -> str:
    """One value with its unit, as a table cell: `20.0 MB/s`. None, and a text that limits nothing, are `unlimited`."""
    text = None if value is None else str(value)
    if key not in BYTE_RATE_KEYS:
        return quota_words(key, text)
    rate = enforced_rate(text)
    return "unlimited" if rate is None else rate_words(rate)


def ago_words(seconds: float) -> str:
    """`40 s ago`, `12 min ago`, `3 h ago`, `5 days ago`; a time in the future (clocks differ) reads `just now`."""
    if seconds < 1:
        return "just now"
    for limit, divisor, unit in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / divisor:.0f} {unit} ago"
    return f"{seconds / 86_400:.0f} days ago"
