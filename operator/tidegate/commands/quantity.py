"""Quota values as people read them: MB/s (10^6 bytes per second), percent of a thread, mutations per second, seconds.

It only words numbers that were decided elsewhere, and always keeps the exact stored text where one exists.
"""

from controller_logic.model import BYTE_RATE_KEYS, QuotaKey

KEY_WORDS = {
    QuotaKey.CONSUMER_BYTE_RATE: "fetch",
    QuotaKey.PRODUCER_BYTE_RATE: "produce",
    QuotaKey.REQUEST_PERCENTAGE: "request",
    QuotaKey.CONTROLLER_MUTATION_RATE: "mutations",
}
KEY_ORDER = {key: place for place, key in enumerate(KEY_WORDS)}
_MEGABYTES_FROM = 10_000  # below this, two decimals of a MB/s would hide most of the number


def byte_rate_words(bytes_per_second: int) -> str:
    """`20.97 MB/s`, or `1024 B/s` where megabytes would round the number away."""
    if bytes_per_second < _MEGABYTES_FROM:
        return f"{bytes_per_second} B/s"
    return f"{bytes_per_second / 1e6:.2f} MB/s"


def quota_words(key: QuotaKey, value: int | str | None) -> str:
    """One value of one key with its unit. None is `unlimited`; a stored text that is no plain number is quoted as it stands."""
    if value is None:
        return "unlimited"
    if key not in BYTE_RATE_KEYS:
        return f"{value} %" if key is QuotaKey.REQUEST_PERCENTAGE else f"{value} /s"
    text = str(value)
    if not (text.isascii() and text.isdigit()):
        return f'"{text}"'
    return byte_rate_words(int(text))


def exact_words(key: QuotaKey, value: int | str | None) -> str:
    """Like `quota_words`, with the canonical integer of a byte rate beside it: `20.97 MB/s (20971520)`."""
    words = quota_words(key, value)
    return f"{words} ({value})" if words.endswith(" MB/s") else words


def ago_words(seconds: float) -> str:
    """`40 s ago`, `12 min ago`, `3 h ago`, `5 days ago`; a time in the future (clocks differ) reads `just now`."""
    if seconds < 1:
        return "just now"
    for limit, divisor, unit in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / divisor:.0f} {unit} ago"
    return f"{seconds / 86_400:.0f} days ago"
