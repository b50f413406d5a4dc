"""Short words for tables and sentences: values with a unit, ages, and the order of quota keys.

Where every digit counts, use `controller_logic.quota_values.quota_words`, which adds the exact
integer. Apart from `output`, which `tidegate --help` imports and which knows nothing of quotas.
"""

from tidegate_logic.model import BYTE_RATE_KEYS, QuotaKey
from tidegate_logic.quota_values import KEY_WORDS, enforced_rate, quota_words, rate_words

KEY_ORDER = {key: place for place, key in enumerate(KEY_WORDS)}


def short_words(key: QuotaKey, value: int | str | None) -> str:
    """A value with unit, as a cell: `20.0 MB/s`. None, or text without a limit, is `unlimited`."""
    text = None if value is None else str(value)
    if key not in BYTE_RATE_KEYS:
        return quota_words(key, text)
    rate = enforced_rate(text)
    return "unlimited" if rate is None else rate_words(rate)


def ago_words(seconds: float) -> str:
    """`40 s ago`, `12 min ago`, `3 h ago`; `just now` if in the future (clocks differ)."""
    if seconds < 1:
        return "just now"
    for limit, divisor, unit in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / divisor:.0f} {unit} ago"
    return f"{seconds / 86_400:.0f} days ago"


def elapsed_words(seconds: float) -> str:
    """`5:06`, or `1:05:06` from an hour on."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
