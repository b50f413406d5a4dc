"""Selections as PromQL and back: presets and policies say in PromQL what remote read wants as single matchers."""

import re

from tidegate.errors import InvalidResource
from tidegate.prometheus.queries import is_equal, literally, matches, matches_none, selector
from tidegate.rollup.samples import Selection

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_TEXT = r'"(?:[^"\\\n]|\\.)*"' + r"|'(?:[^'\\\n]|\\.)*'" + "|`[^`]*`"
_SELECTOR = re.compile(rf"\s*({_NAME})?\s*(?:\{{(.*)\}})?\s*", re.DOTALL)
_MATCHER = re.compile(rf"\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*({_TEXT})\s*(?:,|$)", re.DOTALL)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{3}|.)", re.DOTALL)
_SIGNS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


def promql(selection: Selection) -> str:
    """`{__name__="metric",label="value",...}`."""
    return selector(
        is_equal("__name__", selection.metric) if selection.metric else "",
        *(is_equal(label, value) for label, value in selection.equal.items()),
        *(matches(label, expression) for label, expression in selection.matching.items()),
        *(matches_none(label, [expression]) for label, expression in selection.excluding.items()),
    )


def selection_of(query: str) -> Selection:
    """The selection that a plain selector says, `metric{...}` without function, range or offset.

    Raises InvalidResource for anything else, and for two matchers of one label that no single one can stand for.
    """
    found = _SELECTOR.fullmatch(query)
    if found is None or not (found[1] or found[2]):
        raise _refused(query)
    selection = Selection(found[1] or "", {}, {}, {})
    inner, at = (found[2] or "").strip(), 0
    while at < len(inner):
        if (matcher := _MATCHER.match(inner, at)) is None:
            raise _refused(query)
        selection = _with(selection, matcher[1], operator=matcher[2], value=_unquoted(matcher[3]), query=query)
        at = matcher.end()
    return selection


def _with(selection: Selection, label: str, *, operator: str, value: str, query: str) -> Selection:
    metric, equal, matching, excluding = selection.metric, dict(selection.equal), dict(selection.matching), dict(selection.excluding)
    if operator == "=" and label == "__name__" and not metric:
        metric = value
    elif operator in ("=", "=~"):
        if (equal if operator == "=" else matching).setdefault(label, value) != value:
            raise _refused(query)
    else:
        expression = value if operator == "!~" else literally(value)
        excluding[label] = f"(?:{excluding[label]})|(?:{expression})" if label in excluding else expression
    return Selection(metric, equal, matching, excluding)


def _unquoted(text: str) -> str:
    if text[0] == "`":
        return text[1:-1]
    return _ESCAPE.sub(lambda found: _sign(found[1]), text[1:-1])


def _sign(code: str) -> str:
    if code[0] in "xuU" and len(code) > 1:
        return chr(int(code[1:], 16))
    return chr(int(code, 8)) if len(code) == 3 else _SIGNS.get(code, code)


def _refused(query: str) -> InvalidResource:
    why = f"The query {query} is no plain selector, so its history cannot be read and no usage is written for it."
    return InvalidResource(f'{why} Write it as metric{{label="value", ...}} without function, range or offset, each label once.')
