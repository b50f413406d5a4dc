"""Which texts a quota value may have: those that a broker reads without harm, and the fewer that we write ourselves.

A broker that reads anything else at its start exits (kafka-quotas 1.5), so every text passes here once more on its way out, whoever
computed it.
"""

import re

from controller_logic.model import BYTE_RATE_KEYS, MIN_BYTE_RATE, QuotaKey

_LONG = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_DOUBLE = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,18})?([eE][+-]?[0-9]{1,2})?", re.ASCII)
_OUR_BYTE_RATE = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)
_OUR_NUMBER = re.compile(r"(?=.*[1-9])[0-9]{1,15}(\.[0-9]{1,6})?", re.ASCII)
_LONG_MAX = 2**63 - 1
_LONG_MIN = -(2**63)


def is_readable(key: QuotaKey, text: str) -> bool:
    """Whether every broker parses this text. Zero and negative numbers are readable; Kafka takes them as unlimited."""
    if key in BYTE_RATE_KEYS:
        return _LONG.fullmatch(text) is not None and _LONG_MIN <= int(text) <= _LONG_MAX
    return _DOUBLE.fullmatch(text) is not None


def is_ours(key: QuotaKey, text: str) -> bool:
    """Whether we may set this text: a whole byte rate that throttles (1024 B/s and more), or a plain number above zero."""
    if key in BYTE_RATE_KEYS:
        return _OUR_BYTE_RATE.fullmatch(text) is not None and MIN_BYTE_RATE <= int(text) <= _LONG_MAX
    return _OUR_NUMBER.fullmatch(text) is not None
