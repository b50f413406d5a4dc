"""Both ways of remote read: the stored chunks, streamed, or all samples in one message.

What answers is judged by its kind and its content: some front ends answer any path with a page and
status 200.
"""

import struct
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import accumulate
from typing import TypeVar

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from tidegate.errors import TidegateError
from tidegate.rollup.samples import ReadRequest, Selection
from tidegate.rollup.transport import exchange
from tidegate.rollup.transport.encoding import (
    BYTES,
    FIXED64,
    VARINT,
    ChunkPlaces,
    DecodedChunks,
    Field,
    Malformed,
    bytes_field,
    decode_xor_chunks,
    fields,
    packed,
    read_labels,
    read_varint,
    signed,
    unpacked,
    unpacked_bytes,
    usual_label,
    varint_field,
)
from tidegate.rollup.transport.exchange import Answer, Question
from tidegate.rollup.transport.series import HistoryReader, StoredSeries

# Request of remote read (prometheus/prompb/remote.proto): label matchers over a closed time range.


_EQUAL, _MATCHING, _EXCLUDING = 0, 2, 3


class AnswerKind(IntEnum):
    """What may come back."""

    SAMPLES = 0
    STREAMED_XOR_CHUNKS = 1


def read_request(asked: Sequence[ReadRequest], *, kind: AnswerKind) -> bytes:
    """The message ReadRequest as a Snappy block, with a query for each of these.

    Remote read's ranges hold both ends, ours not `end_ms`.
    """
    queries = b"".join(bytes_field(1, _query(*one)) for one in asked)
    return packed(queries + varint_field(2, kind))


def _query(selection: Selection, start_ms: int, end_ms: int) -> bytes:
    matchers = b"".join(bytes_field(3, matcher) for matcher in _matchers(selection))
    return varint_field(1, start_ms) + varint_field(2, end_ms - 1) + matchers


def _matchers(selection: Selection) -> Iterator[bytes]:
    if selection.metric:
        yield _matcher(_EQUAL, "__name__", selection.metric)
    for kind, wanted in (
        (_EQUAL, selection.equal),
        (_MATCHING, selection.matching),
        (_EXCLUDING, selection.excluding),
    ):
        for label, value in wanted.items():
            yield _matcher(kind, label, value)


def _matcher(kind: int, label: str, value: str) -> bytes:
    return varint_field(1, kind) + bytes_field(2, label.encode()) + bytes_field(3, value.encode())


# Streamed answer of remote read: frames with length and checksum, each a message of series.
#
#     frame = length (varint) | CRC-32C of the message (4 bytes, big-endian) | ChunkedReadResponse
#     ChunkedReadResponse { repeated ChunkedSeries series = 1; int64 query_index = 2 }
#     ChunkedSeries { repeated Label labels = 1; repeated Chunk chunks = 2 }
#     Chunk { int64 min_time_ms = 1; int64 max_time_ms = 2; Encoding type = 3; bytes data = 4 }
#
# A series may go on in the next frame. A faulty server writes its error as text behind the
# frames: the checksum distinguishes it from a frame.
#
# Reading is most of the work where series are short. So messages are read by the lengths and keys
# that servers write, in one loop; whatever differs is read field by field, and refused there.


_CHECKSUM_BYTES = 4
# keys of fields: of a message of the answer, then of a series
_SERIES_KEY, _QUERY_KEY = 0x0A, 0x10
_LABEL_KEY, _CHUNK_KEY = 0x0A, 0x12
_XOR = 1
_ENCODINGS = {0: "of no stated kind", 2: "of native histograms", 3: "of native float histograms"}

Place = tuple[int, int]
Label = tuple[str, str]


class UnknownEncoding(ValueError):
    """Chunks of something else than floats; its text completes "The answer has chunks ..."."""


class NewerEncoding(UnknownEncoding):
    """Chunks of a kind that is not known here, perhaps floats, such as XOR2 (4)."""


@dataclass(slots=True)
class StoredChunks:
    """Series with chunks that lie, still packed, in `answer`; a series may come in pieces."""

    answer: bytes
    labels: list[Mapping[str, str]] = field(default_factory=list)
    chunks: list[int] = field(default_factory=list)  # of each series
    starts: list[int] = field(default_factory=list)  # rising
    ends: list[int] = field(default_factory=list)

    @property
    def begin(self) -> int:
        """Where the first chunk begins: those of other queries may lie beside them."""
        return self.starts[0] if self.starts else 0

    @property
    def size_bytes(self) -> int:
        """From the first chunk to the end of the last one."""
        return self.ends[-1] - self.begin if self.ends else 0


def read_frames(answer: bytes) -> StoredChunks:
    """All series of a whole answer.

    Raises Malformed when it is damaged or ends early, UnknownEncoding for chunks of anything but
    floats, NewerEncoding for those that are not known. Whether the chunks themselves are sound is
    found out by `decoded`.
    """
    found, seen = StoredChunks(answer), dict[bytes, Label]()
    for _, series in _messages(answer):
        _read_all_series(found, series, seen)
    return found


def read_answers(answer: bytes, queries: int) -> list[StoredChunks]:
    """What each query of a question found, up to the last one of which there is a frame.

    Servers answer queries one after the other and number the frames of each. So whatever is before
    a frame of a later query is whole, even where nothing was found. Of queries behind the last
    frame it is unknown whether the server read them. Raises what `read_frames` raises, and
    Malformed where frames are out of order.
    """
    found, seen = list[StoredChunks](), dict[bytes, Label]()
    for query, series in _messages(answer):
        if not len(found) - 1 <= query < queries:
            raise Malformed("its queries are out of order")
        found += [StoredChunks(answer) for _ in range(query + 1 - len(found))]
        _read_all_series(found[query], series, seen)
    return found


def decoded(answers: Sequence[StoredChunks]) -> list[StoredSeries]:
    """The samples of each answer; raises Malformed when a chunk of any of them is damaged.

    Decoding takes a step for each sample of the longest chunk, whether there are three chunks or a
    thousand. So answers of few series are better decoded together with those of many.
    """
    begins = accumulate((one.size_bytes for one in answers), initial=0)
    shifts = [begin - one.begin for begin, one in zip(begins, answers, strict=False)]
    places = ChunkPlaces(
        _shifted([one.starts for one in answers], shifts),
        _shifted([one.ends for one in answers], shifts),
    )
    buffer = b"".join(
        memoryview(one.answer)[one.begin : one.begin + one.size_bytes] for one in answers
    )
    return list(_shares(answers, decode_xor_chunks(buffer, places)))


def _shifted(places: Sequence[Sequence[int]], shifts: Sequence[int]) -> NDArray[np.int64]:
    moved = (np.array(each, np.int64) + by for each, by in zip(places, shifts, strict=True))
    return np.concatenate([np.zeros(0, np.int64), *moved])


def _shares(answers: Sequence[StoredChunks], samples: DecodedChunks) -> Iterator[StoredSeries]:
    """What belongs to each answer."""
    chunk = sample = 0
    for one in answers:
        of_chunks = samples.counts[chunk : chunk + len(one.starts)]
        of_series = np.repeat(np.arange(len(one.labels)), one.chunks)
        counts = np.bincount(of_series, weights=of_chunks, minlength=len(one.labels)).astype(
            np.int64
        )
        own = slice(sample, sample + int(of_chunks.sum()))
        yield StoredSeries(one.labels, counts, samples.times_ms[own], samples.values[own])
        chunk, sample = chunk + len(of_chunks), own.stop


def _messages(answer: bytes) -> Iterator[tuple[int, Sequence[Place]]]:
    """Of each message the number of its query, and where its series lie.

    All checksums are found right before the first.
    """
    begins, starts, ends, cut = _frames(answer)
    for begin, start, end in zip(begins, starts, ends, strict=True):
        sent = int.from_bytes(answer[start - _CHECKSUM_BYTES : start], "big")
        if google_crc32c.value(answer[start:end]) != sent:
            raise Malformed(f"the checksum of a frame is wrong{_text(answer[begin:])}")
    if cut is not None:
        raise Malformed(f"its last frame is not whole{_text(answer[cut:])}")
    for start, end in zip(starts, ends, strict=True):
        yield _usual_message(answer, start, end) or _message(answer, start, end)


def _frames(answer: bytes) -> tuple[list[int], list[int], list[int], int | None]:
    """Where frames begin, where their messages lie, and where one begins that is not whole."""
    begins: list[int] = []
    starts: list[int] = []
    ends: list[int] = []
    at = 0
    while at < len(answer):
        length, begin = read_varint(answer, at, len(answer))
        start = begin + _CHECKSUM_BYTES
        if start + length > len(answer):
            return begins, starts, ends, at
        begins.append(at)
        starts.append(start)
        ends.append(start + length)
        at = start + length
    return begins, starts, ends, None


def _usual_message(answer: bytes, start: int, end: int) -> tuple[int, Sequence[Place]] | None:
    """A message of one series with a number below 128, or without one as those of query 0 are."""
    if start == end or answer[start] != _SERIES_KEY:
        return None
    length, begin = read_varint(answer, start + 1, end)
    stop = begin + length
    if stop == end:
        return 0, [(begin, stop)]
    if stop + 2 == end and answer[stop] == _QUERY_KEY and answer[stop + 1] < 0x80:
        return answer[stop + 1], [(begin, stop)]
    return None


def _message(answer: bytes, start: int, end: int) -> tuple[int, Sequence[Place]]:
    query, series = 0, list[Place]()
    for part in fields(answer, start, end):
        if part.number == 1 and part.wire_type == BYTES:
            series.append((part.start, part.end))
        elif part.number == 2 and part.wire_type == VARINT:
            query = part.value
    return query, series


def _text(rest: bytes) -> str:
    """What stands in place of a frame, if it is text."""
    said = rest[:200].decode("ascii", "replace").strip()
    return f'; it reads "{said}"' if said.isprintable() and "\ufffd" not in said else ""


def _read_all_series(
    found: StoredChunks, places: Sequence[Place], seen: dict[bytes, Label]
) -> None:
    for start, end in places:
        if not _read_usual_series(found, start, end, seen=seen):
            _read_series(found, start, end)


def _read_usual_series(
    found: StoredChunks, start: int, end: int, *, seen: dict[bytes, Label]
) -> bool:
    """Read a series of nothing but labels and chunks, each below 16 KiB; False for any other.

    Most labels repeat from series to series: `seen` has those that were read, by their bytes.
    """
    answer = found.answer
    labels: list[Label] = []
    starts: list[int] = []
    ends: list[int] = []
    at = start
    while at + 2 < end:
        # a key of one byte, a length of one or two
        key, size, begin = answer[at], answer[at + 1], at + 2
        if size >= 0x80:
            high = answer[begin]
            size, begin = size & 0x7F | high << 7, begin + 1
            if high >= 0x80:
                return False
        at = begin + size
        if at > end:
            return False
        if key == _LABEL_KEY:
            content = answer[begin:at]
            label = seen.get(content)
            if label is None:
                label = usual_label(answer, begin, at)
                if label is None:
                    return False
                seen[content] = label
            labels.append(label)
        elif key == _CHUNK_KEY and (place := _usual_data(answer, begin, at)):
            starts.append(place[0])
            ends.append(place[1])
        else:
            return False
    if at != end:
        return False
    found.labels.append(dict(labels))
    found.chunks.append(len(starts))
    found.starts += starts
    found.ends += ends
    return True


def _read_series(found: StoredChunks, start: int, end: int) -> None:
    answer = found.answer
    labels: list[Place] = []
    chunks = 0
    for part in fields(answer, start, end):
        if part.number == 1 and part.wire_type == BYTES:
            labels.append((part.start, part.end))
        elif part.number == 2 and part.wire_type == BYTES:
            begin, stop = _usual_data(answer, part.start, part.end) or _data(
                answer, part.start, part.end
            )
            found.starts.append(begin)
            found.ends.append(stop)
            chunks += 1
    found.labels.append(read_labels(answer, labels))
    found.chunks.append(chunks)


def _usual_data(answer: bytes, start: int, end: int) -> tuple[int, int] | None:
    """Where the data of a chunk lies whose two times have six bytes each, as from 1971 to 2109.

    Nearly all are; this is most of the work of reading an answer. None for another layout.
    """
    # 08 <time> 10 <time> 18 01 22 <length, up to two bytes>
    if (
        end - start < 19
        or answer[start] != 0x08
        or answer[start + 7] != 0x10
        or answer[start + 14 : start + 17] != b"\x18\x01\x22"
    ):
        return None
    begin, length = start + 18, answer[start + 17]
    if length >= 0x80:
        begin, length = begin + 1, length & 0x7F | answer[start + 18] << 7
    # were it another layout that only looks like this one, its length would not fit
    return (begin, end) if begin + length == end else None


def _data(answer: bytes, start: int, end: int) -> tuple[int, int]:
    encoding, place = 0, (end, end)
    for part in fields(answer, start, end):
        if part.number == 3:
            encoding = part.value
        elif part.number == 4 and part.wire_type == BYTES:
            place = part.start, part.end
    if encoding != _XOR:
        if encoding in _ENCODINGS:
            raise UnknownEncoding(_ENCODINGS[encoding])
        raise NewerEncoding(f"of the unknown kind {encoding}")
    return place


# The plain answer of remote read: a message of series with samples, cut out in bulk where samples
# have their usual length.
#
#     ReadResponse { repeated QueryResult results = 1 }
#     QueryResult { repeated TimeSeries timeseries = 1 }
#     TimeSeries { repeated Label labels = 1; repeated Sample samples = 2;
#                  repeated Histogram histograms = 4 }
#     Sample { double value = 1; int64 timestamp = 2 }
#
# A sample is 18 bytes, `12 10 09 <value> 10 <time>`, as long as its time has six bytes (1971 to
# 2109). A value of zero is left out, which makes it `12 07 10 <time>`: idle clients have many of
# them. Series with other samples are read field by field.


_USUAL_BYTES, _USUAL_LENGTH, _ZERO_LENGTH = 18, 16, 7
_LABELS, _SAMPLES, _HISTOGRAMS = 1, 2, 4
_SAMPLE_KEY = 0x12
_double = struct.Struct("<d").unpack_from

Times = NDArray[np.int64]
Values = NDArray[np.float64]


class Histograms(ValueError):
    """A series of native histograms, which have no single value."""


@dataclass(frozen=True, slots=True)
class _Series:
    """`samples` is the part of its message that holds nothing but samples."""

    labels: Mapping[str, str]
    samples: tuple[int, int]


def read_samples(answer: bytes) -> StoredSeries:
    """All series of an unpacked answer; raises Malformed, or Histograms for native ones."""
    series = list(_series(answer))
    parts = [_samples(answer, *one.samples) for one in series]
    counts = np.array([len(times) for times, _ in parts], np.int64)
    times_ms = np.concatenate([np.zeros(0, np.int64), *(times for times, _ in parts)])
    return StoredSeries(
        [one.labels for one in series],
        counts,
        times_ms,
        np.concatenate([np.zeros(0), *(values for _, values in parts)]),
    )


def _series(answer: bytes) -> Iterator[_Series]:
    for result in fields(answer, 0, len(answer)):
        if result.number != 1 or result.wire_type != BYTES:
            continue
        for series in fields(answer, result.start, result.end):
            if series.number == 1 and series.wire_type == BYTES:
                yield _one_series(answer, series.start, series.end)


def _one_series(answer: bytes, start: int, end: int) -> _Series:
    labels: list[tuple[int, int]] = []
    at = start
    for part in fields(answer, start, end):
        if part.number == _LABELS and part.wire_type == BYTES:
            labels.append((part.start, part.end))
        elif part.number == _SAMPLES:
            break  # nothing but samples from here on, as servers write it; `_walked` makes sure
        elif part.number == _HISTOGRAMS:
            raise Histograms("native histograms")
        at = part.end
    return _Series(read_labels(answer, labels), (at, end))


def _samples(answer: bytes, start: int, end: int) -> tuple[Times, Values]:
    usual = _sliced(answer, start, end) if (end - start) % _USUAL_BYTES == 0 else None
    return usual or _stepped(answer, start, end) or _walked(answer, start, end)


def _sliced(answer: bytes, start: int, end: int) -> tuple[Times, Values] | None:
    """The samples when all of them have the usual length; None when one has not."""
    rows = np.frombuffer(answer, np.uint8, end - start, start).reshape(-1, _USUAL_BYTES)
    time_bytes = rows[:, 12:]
    if not (
        (rows[:, :3] == (_SAMPLE_KEY, _USUAL_LENGTH, 9)).all()
        and (rows[:, 11] == 0x10).all()
        and _six_bytes(time_bytes)
    ):
        return None
    return _times_ms(time_bytes), _doubles(rows[:, 3:11])


def _stepped(answer: bytes, start: int, end: int) -> tuple[Times, Values] | None:
    """The samples if each has the usual length or only lacks its value; None if one differs."""
    places, at = [], start
    while at + 1 < end:
        places.append(at)
        at += 2 + answer[at + 1]
    if at != end:
        return None
    data, begin = np.frombuffer(answer, np.uint8), np.array(places, np.int64)
    zero = data[begin + 1] == _ZERO_LENGTH
    time_at = begin + np.where(zero, 3, 12)
    if time_at.max(initial=0) + 6 > end or not (
        (data[begin] == _SAMPLE_KEY).all() and (data[time_at - 1] == 0x10).all()
    ):
        return None
    full, time_bytes = begin[~zero], data[time_at[:, None] + np.arange(6)]
    if not (
        (data[full + 1] == _USUAL_LENGTH).all()
        and (data[full + 2] == 9).all()
        and _six_bytes(time_bytes)
    ):
        return None
    values = np.zeros(len(begin))
    values[~zero] = _doubles(data[full[:, None] + np.arange(3, 11)])
    return _times_ms(time_bytes), values


def _six_bytes(time_bytes: NDArray[np.uint8]) -> bool:
    return bool((time_bytes[:, :5] >= 0x80).all() and (time_bytes[:, 5] < 0x80).all())


def _times_ms(time_bytes: NDArray[np.uint8]) -> Times:
    times_ms = np.zeros(len(time_bytes), np.int64)
    for place in range(6):
        times_ms |= (time_bytes[:, place].astype(np.int64) & 0x7F) << (7 * place)
    return times_ms


def _doubles(value_bytes: NDArray[np.uint8]) -> Values:
    return np.ascontiguousarray(value_bytes).view("<f8").reshape(-1).astype(np.float64)


def _walked(answer: bytes, start: int, end: int) -> tuple[Times, Values]:
    times_ms: list[int] = []
    values: list[float] = []
    for part in fields(answer, start, end):
        if part.number == _HISTOGRAMS:
            raise Histograms("native histograms")
        if part.number == _SAMPLES and part.wire_type == BYTES:
            time_ms, value = _sample(answer, part)
            times_ms.append(time_ms)
            values.append(value)
        elif part.number == _LABELS:
            raise Malformed("a series in it has labels behind its samples")
    return np.array(times_ms, np.int64), np.array(values, np.float64)


def _sample(answer: bytes, sample: Field) -> tuple[int, float]:
    time_ms, value = 0, 0.0
    for part in fields(answer, sample.start, sample.end):
        if part.number == 1 and part.wire_type == FIXED64:
            (value,) = _double(answer, part.start)
        elif part.number == 2:
            time_ms = signed(part.value)
    return time_ms, value


_PATH = "/api/v1/read"
_TOGETHER_BYTES = 32 * 1024 * 1024  # of answers; decoding more of them together only takes memory
_HEADERS = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Read-Version": "0.1.0",
}

Result = TypeVar("Result")


_CONTENT_TYPES = {
    AnswerKind.SAMPLES: "application/x-protobuf",
    AnswerKind.STREAMED_XOR_CHUNKS: "application/x-streamed-protobuf",
}


class _RemoteRead(HistoryReader):
    def _ask(
        self,
        kind: AnswerKind,
        asked: ReadRequest,
        *,
        read: Callable[[Answer], Result],
        until: float,
    ) -> Result:
        question = Question(_PATH, read_request([asked], kind=kind), _HEADERS)
        return self._exchange.ask(
            question, lambda answer: _checked(kind, answer, read), until=until
        )

    def _samples(self, asked: ReadRequest, until: float) -> StoredSeries:
        return self._ask(AnswerKind.SAMPLES, asked, read=_samples_in, until=until)


def _checked(kind: AnswerKind, answer: Answer, read: Callable[[Answer], Result]) -> Result:
    if answer.kind.partition(";")[0].strip() != _CONTENT_TYPES[kind]:
        raise answer.other_content(_CONTENT_TYPES[kind])
    try:
        return read(answer)
    except Malformed as error:
        raise exchange.damaged(error, answer.address) from error
    except (UnknownEncoding, Histograms) as error:
        raise exchange.no_floats(error, answer.address) from error


class RemoteReadChunks(_RemoteRead):
    """Remote read, STREAMED_XOR_CHUNKS: least work for the server, fewest bytes, fastest here.

    Several requests are one question, where its answer proves that the server read all of them.
    What a server has in a newer encoding is asked for again as samples, that question alone: blocks
    of several encodings lie side by side for as long as the server keeps history.
    """

    name = "remote-read-chunks"

    def _stored_all(self, asked: Sequence[ReadRequest]) -> Iterator[StoredSeries]:
        group: list[tuple[ReadRequest, StoredChunks]] = []
        found = deque(self._answered_at_once(asked))
        for one in asked:
            until = self._exchange.deadline()
            chunks = found.popleft() if found else self._chunks(one, until)
            if chunks is None:
                yield from self._together(group)
                yield self._samples(one, until)
                group = []
                continue
            group.append((one, chunks))
            if sum(chunks.size_bytes for _, chunks in group) > _TOGETHER_BYTES:
                yield from self._together(group)
                group = []
        yield from self._together(group)

    def _answered_at_once(self, asked: Sequence[ReadRequest]) -> list[StoredChunks]:
        """What one question with all queries found, for the first of these; none of the others.

        A query whose answer is not proven is not among them, see `read_answers`: a server that
        reads only the first one never sends another number. There is one attempt. Whatever goes
        wrong, such as an answer above the limit, each is then asked by itself with all attempts.
        """
        if len(asked) < 2:
            return []
        kind = AnswerKind.STREAMED_XOR_CHUNKS
        question = Question(_PATH, read_request(asked, kind=kind), _HEADERS)

        def read(answer: Answer) -> list[StoredChunks]:
            return _checked(kind, answer, lambda it: read_answers(it.whole(), len(asked)))

        try:
            found = self._exchange.ask(question, read, until=self._exchange.deadline(), attempts=1)
        except TidegateError:
            return []
        # frames without any number may be of all queries, or of the first alone
        return found if len(found) > 1 else []

    def _together(
        self, group: Sequence[tuple[ReadRequest, StoredChunks]]
    ) -> Sequence[StoredSeries]:
        try:
            return decoded([chunks for _, chunks in group])
        except Malformed:
            # a chunk in a sound frame: by itself its request gets further attempts, or its error
            return list(super()._stored_all([one for one, _ in group]))

    def _chunks(self, asked: ReadRequest, until: float) -> StoredChunks | None:
        """None where there are chunks of another encoding among them."""
        kind = AnswerKind.STREAMED_XOR_CHUNKS
        return self._ask(kind, asked, read=_chunks_in, until=until)

    def _stored(
        self, selection: Selection, start_ms: int, *, end_ms: int, until: float
    ) -> StoredSeries:
        def read(answer: Answer) -> StoredSeries | None:
            chunks = _chunks_in(answer)
            return None if chunks is None else decoded([chunks])[0]

        asked = ReadRequest(selection, start_ms, end_ms)
        found = self._ask(AnswerKind.STREAMED_XOR_CHUNKS, asked, read=read, until=until)
        return self._samples(asked, until) if found is None else found


def _chunks_in(answer: Answer) -> StoredChunks | None:
    try:
        return read_frames(answer.whole())
    except NewerEncoding:
        return None


class RemoteReadSamples(_RemoteRead):
    """Remote read, SAMPLES: the server holds the whole answer in memory, and bounds it.

    The bound is 50 million samples by default.
    """

    name = "remote-read-samples"

    def _stored(
        self, selection: Selection, start_ms: int, *, end_ms: int, until: float
    ) -> StoredSeries:
        return self._samples(ReadRequest(selection, start_ms, end_ms), until)


def _samples_in(answer: Answer) -> StoredSeries:
    block = answer.whole()
    if unpacked_bytes(block) > answer.limit_bytes:
        raise exchange.too_large(answer.limit_bytes, answer.address)
    return read_samples(unpacked(block))
