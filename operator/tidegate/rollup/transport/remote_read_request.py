"""The question of remote read (prometheus/prompb/remote.proto): one query of label matchers over a closed range of time."""

from collections.abc import Iterator
from enum import IntEnum

from tidegate.rollup.samples import Selection
from tidegate.rollup.transport.snappy_block import packed
from tidegate.rollup.transport.wire import bytes_field, varint_field

_EQUAL, _MATCHING, _EXCLUDING = 0, 2, 3


class AnswerKind(IntEnum):
    """What may come back."""

    SAMPLES = 0
    STREAMED_XOR_CHUNKS = 1


def read_request(selection: Selection, start_ms: int, end_ms: int, *, kind: AnswerKind) -> bytes:
    """The message ReadRequest in snappy's block format. Remote read's ranges hold both ends, ours not the last millisecond."""
    matchers = b"".join(bytes_field(3, matcher) for matcher in _matchers(selection))
    query = varint_field(1, start_ms) + varint_field(2, end_ms - 1) + matchers
    return packed(bytes_field(1, query) + varint_field(2, kind))


def _matchers(selection: Selection) -> Iterator[bytes]:
    if selection.metric:
        yield _matcher(_EQUAL, "__name__", selection.metric)
    for kind, wanted in ((_EQUAL, selection.equal), (_MATCHING, selection.matching), (_EXCLUDING, selection.excluding)):
        for label, value in wanted.items():
            yield _matcher(kind, label, value)


def _matcher(kind: int, label: str, value: str) -> bytes:
    return varint_field(1, kind) + bytes_field(2, label.encode()) + bytes_field(3, value.encode())
