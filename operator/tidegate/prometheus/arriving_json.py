"""JSON read from the front while it is still arriving, so that an answer of many megabytes never stands in memory as a whole.

It knows objects, lists and values, and nothing of Prometheus.
"""

import codecs
import json
import re
from collections.abc import Iterator

_NOT_SPACE = re.compile(r"[^ \t\r\n]")
_CLOSED = frozenset('"]}')  # a value that ends in one of these is whole; a number may go on
_AFTER_NUMBER = frozenset(",]} \t\r\n")
_raw_decode = json.JSONDecoder().raw_decode


class NotJson(ValueError):
    """The text is no JSON, or ends before it is whole."""


class ArrivingJson:
    """Takes values from the front of a text that comes in `chunks` of UTF-8. Every method raises NotJson where the text is none."""

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
            except (ValueError, RecursionError):
                if not self._skips_space() and not self._more():
                    raise self._not_json() from None
                continue
            if self._text[end - 1] in _CLOSED or self._text[end : end + 1] in _AFTER_NUMBER:
                self._at = end
                return value
            if not self._more():
                self._at = end - start
                return value

    def members(self) -> Iterator[str]:
        """The names in the object that comes next; whoever takes a name takes its value before the next name."""
        for _ in self._between("{", "}"):
            name = self.value()
            self._take(":")
            yield str(name)

    def items(self) -> Iterator[object]:
        """The values in the list that comes next."""
        for _ in self._between("[", "]"):
            yield self.value()
            while self._text.startswith(",", self._at):  # the usual way, without the steps of `_between`: there may be 100,000
                self._at += 1
                yield self.value()

    def end(self) -> None:
        """Make sure that nothing follows."""
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
        """Let more text arrive: at least as much as is left, so that a long value is not looked at again for every chunk of it."""
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

    def _not_json(self) -> NotJson:
        shown = self._text[self._at : self._at + 40]
        return NotJson(f"it reads {shown!r} where something else must stand" if shown else "it ends before it is whole")
