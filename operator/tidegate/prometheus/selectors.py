"""PromQL selectors, with every label value escaped, so that no name can change what is asked. It knows no metric."""

import math
import re
from collections.abc import Iterable

_REGEX_SIGNS = re.compile(r"[\\.+*?()|\[\]{}^$]")
_TEXT_SIGNS = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def selector(*matchers: str) -> str:
    """`{a="b",c=~"d"}`; the metric's name is a matcher as the others."""
    return "{" + ",".join(matcher for matcher in matchers if matcher) + "}"


def is_equal(label: str, value: str) -> str:
    """Series whose label has this value; the empty value also where the label is absent."""
    return f'{label}="{value.translate(_TEXT_SIGNS)}"'


def is_not(label: str, value: str) -> str:
    """Series whose label has another value; with the empty value: those that have the label."""
    return f'{label}!="{value.translate(_TEXT_SIGNS)}"'


def matches(label: str, *expressions: str) -> str:
    """Series whose whole label matches one of these regular expressions (RE2); what comes from users goes through `literally` first."""
    return f'{label}=~"{"|".join(expressions).translate(_TEXT_SIGNS)}"'


def matches_none(label: str, expressions: Iterable[str]) -> str:
    """Series whose label matches none of these regular expressions."""
    return f'{label}!~"{"|".join(expressions).translate(_TEXT_SIGNS)}"'


def literally(text: str) -> str:
    """The regular expression that matches just this text. Python's own escapes signs that RE2 does not want escaped."""
    return _REGEX_SIGNS.sub(r"\\\g<0>", text)


def over_last(query: str, seconds: float) -> str:
    """The raw samples of the last `seconds` with their own times; an instant query without range would give them the time of asking."""
    return f"{query.strip()}[{math.ceil(seconds)}s]"
