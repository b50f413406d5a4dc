"""An answer of Prometheus' query API, read as it arrives.

Each series is passed on at once and not kept. The API's shape: `{"status": "success", "data":
{"resultType": "matrix", "result": [{"metric": {...}, "values": [[time, "value"], ...]}]},
"warnings": [...]}`, in any order of members. Errors name what is wrong with an answer; the client
turns them into messages.
"""

import codecs
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from tidegate.prometheus.series import Series

# JSON, read from the front as it arrives: an answer of many megabytes is never whole in memory.


_NOT_SPACE = re.compile(r"[^ \t\r\n]")
_CLOSED = frozenset('"]}')  # a value that ends in one of these is whole; a number may go on
_AFTER_NUMBER = frozenset(",]} \t\r\n")
_raw_decode = json.JSONDecoder().raw_decode


class NotJson(ValueError):
    """The text is not JSON, or ends before it is whole. The message shows nothing of the text."""


class EndsEarly(NotJson):
    """The text ends before it is whole."""


class ArrivingJson:
    """Takes values from the front of a text that comes in `chunks` of UTF-8.

    Every method raises NotJson where it cannot be read.
    """

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._decode = codecs.getincrementaldecoder("utf-8")()
        self._text = ""
        self._at = 0

    def peek(self) -> str:
        """The next character that is not white space, which stays; empty at the end."""
        while (found := _NOT_SPACE.search(self._text, self._at)) is None:
            self._at = len(self._text)
            if not self._more():
                return ""
        self._at = found.start()
        return self._text[self._at]

    def value(self) -> object:
        """The next value, whole."""
        while True:
            start = self._at
            try:
                value, end = _raw_decode(self._text, start)
            except (ValueError, RecursionError) as error:
                if not self._skips_space() and not self._more():
                    raise self._not_json(ends=_lacks_its_end(error, self._text)) from None
                continue
            if self._text[end - 1] in _CLOSED or self._text[end : end + 1] in _AFTER_NUMBER:
                self._at = end
                return value
            if not self._more():
                self._at = end - start
                return value

    def members(self) -> Iterator[str]:
        """The names in the object that comes next; take each value before the next name."""
        for _ in self._between("{", "}"):
            name = self.value()
            self._take(":")
            yield str(name)

    def items(self) -> Iterator[object]:
        """The values in the list that comes next."""
        for _ in self._between("[", "]"):
            yield self.value()
            while self._text.startswith(
                ",", self._at
            ):  # the usual way, without the steps of `_between`: there may be 100,000
                self._at += 1
                yield self.value()

    def end(self) -> None:
        """Raise NotJson if anything follows."""
        if self.peek():
            raise self._not_json()

    def _skips_space(self) -> bool:
        found = _NOT_SPACE.search(self._text, self._at)
        if found is None or found.start() == self._at:
            return False
        self._at = found.start()
        return True

    def _between(self, opening: str, closing: str) -> Iterator[None]:
        self._take(opening)
        if self.peek() == closing:
            self._take(closing)
            return
        while True:
            yield
            if self._take("," + closing) == closing:
                return

    def _take(self, expected: str) -> str:
        found = self.peek()
        if not found or found not in expected:
            raise self._not_json()
        self._at += 1
        return found

    def _more(self) -> bool:
        """Read on, at least as much as is left: no long value is parsed again for every chunk."""
        left = self._text[self._at :]
        parts, length = [left], len(left)
        while length < 2 * len(left) or length == 0:
            chunk = next(self._chunks, None)
            if chunk is None:
                break
            try:
                parts.append(self._decode.decode(chunk))
            except UnicodeDecodeError:
                raise NotJson("it is not UTF-8") from None
            length += len(parts[-1])
        self._text, self._at = "".join(parts), 0
        return length > len(left)

    def _not_json(self, *, ends: bool = False) -> NotJson:
        if ends or self._at >= len(self._text):
            return EndsEarly("it ends before it is whole")
        return NotJson("it is not JSON")


def _lacks_its_end(error: Exception, text: str) -> bool:
    return isinstance(error, json.JSONDecodeError) and (
        error.pos >= len(text) or error.msg.startswith("Unterminated")
    )


# What may be shown of an answer. Users who can write a policy choose the address, and maybe only
# the operator can reach it: so nothing is shown but what Prometheus itself said.


_ERROR_TYPES = (
    *("bad_data", "canceled", "execution", "internal", "not_acceptable", "not_found"),
    *("timeout", "too_many_requests", "unavailable"),
)
_RESULT_TYPES = ("matrix", "scalar", "string", "vector")


def own_error(document: object) -> str | None:
    """The reason in an error answer of Prometheus' query API; None = the document is none."""
    if not isinstance(document, dict) or document.get("status") != "error":
        return None
    reason = document.get("error")
    is_own = document.get("errorType") in _ERROR_TYPES and isinstance(reason, str)
    return reason if is_own else None


Item = TypeVar("Item")

_TEXT = {str}


@dataclass(slots=True)
class Answer(Generic[Item]):
    """The items made of the series, and the server's warnings that something may be missing."""

    items: list[Item] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


class NotSamples(ValueError):
    """The answer is JSON without samples.

    The message completes "Prometheus answered, but ...".
    """


def read_answer(chunks: Iterator[bytes], each: Callable[[Series], Item]) -> Answer[Item]:
    """Parse these bytes, with `each` applied to every series that has a sample.

    Raises NotJson or NotSamples when it is anything else than a whole, successful answer with
    samples over a range.
    """
    text, answer, envelope = _object(ArrivingJson(chunks)), Answer[Item](), dict[str, object]()
    result_type: object = None
    for name in text.members():
        if name == "data" and text.peek() == "{":
            result_type = _read_data(text, answer, each)
        else:
            envelope[name] = text.value()
    text.end()
    _refuse_anything_but_samples(envelope, result_type, "matrix")
    answer.warnings = _warnings(envelope)
    return answer


def warnings_of(content: bytes) -> list[str]:
    """The warnings of a whole answer with samples, over a range or of one moment each.

    Raises NotJson or NotSamples as `read_answer` does; the series themselves are not examined.
    """
    text = ArrivingJson(iter([content]))
    document: Any = _object(text).value()
    text.end()
    data = document.get("data")
    is_result = isinstance(data, dict) and isinstance(data.get("result"), list)
    result_type = data.get("resultType") if is_result else None
    _refuse_anything_but_samples(document, result_type, "matrix", "vector")
    return _warnings(document)


def series_of(item: Any) -> Series:
    """One item of an answer's result. Raises NotSamples."""
    if isinstance(item, dict) and "value" in item:
        return _series({**item, "values": [item["value"]]})
    return _series(item)


def _object(text: ArrivingJson) -> ArrivingJson:
    if text.peek() != "{":
        raise NotJson("it is a web page" if text.peek() == "<" else "it is not a JSON object")
    return text


def _read_data(text: ArrivingJson, answer: Answer[Item], each: Callable[[Series], Item]) -> object:
    result_type, is_result = None, False
    for name in text.members():
        if name == "result" and text.peek() == "[":
            is_result = True
            answer.items.extend(
                each(series) for item in text.items() if (series := _series(item)).samples
            )
        elif name == "resultType":
            result_type = text.value()
        else:
            text.value()
    return result_type if is_result else None


def _refuse_anything_but_samples(
    envelope: dict[str, object], result_type: object, *wanted: str
) -> None:
    if envelope.get("status") != "success":
        reason = own_error(envelope)
        raise NotSamples(
            f"its status is 'error' ({reason})" if reason else "its status is not success"
        )
    if result_type not in wanted:
        given = repr(result_type) if result_type in _RESULT_TYPES else "unknown"
        raise NotSamples(f"with a result of type {given} instead of samples")


def _warnings(envelope: dict[str, object]) -> list[str]:
    said = envelope.get("warnings") or []
    warnings = [str(warning) for warning in said] if isinstance(said, list) else [str(said)]
    if envelope.get("isPartial"):  # VictoriaMetrics' warning
        warnings.append("isPartial: some of its storage nodes did not answer")
    return warnings


def _series(item: Any) -> Series:
    # Written for speed: a reading of 50 brokers with 5000 clients each has a million of them.
    try:
        labels, values = item["metric"], item.get("values", ())  # native histograms have none
        samples = tuple([(float(at), float(amount)) for at, amount in values])
        kinds = {*map(type, labels.values())}
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
        raise NotSamples(
            "a series in it has no labels, or a sample that is not a time with a value"
        ) from None
    if kinds != _TEXT and kinds:
        raise NotSamples("a label in it is not text")
    before = -math.inf
    for at, _ in samples:
        if not before < at < math.inf:
            raise NotSamples("the samples of a series in it do not follow each other in time")
        before = at
    return Series(labels, samples)
