"""Both ways of remote read: the stored chunks, streamed, or all samples in one message.

What answers is judged by its kind and its content: some front ends answer any path with a page and
status 200.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import accumulate
from typing import Any, NoReturn, TypeVar

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from tidegate.errors import InvalidResource, TidegateError
from tidegate.rollup.samples import ReadRequest, Selection
from tidegate.rollup.transport import encoding
from tidegate.rollup.transport.encoding import (
    ChunkPlaces,
    DecodedChunks,
    Malformed,
    decode_xor_chunks,
    packed,
    parsed,
    read_varint,
    unpacked,
    unpacked_bytes,
)
from tidegate.rollup.transport.exchange import Answer, Question
from tidegate.rollup.transport.series import HistoryReader, StoredSeries
from tidegate_logic.reasons import Reason

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
    request = encoding.ReadRequest(kinds=[kind])
    for selection, start_ms, end_ms in asked:
        query = request.queries.add(start_ms=start_ms, end_ms=end_ms - 1)
        for operator, label, value in _matchers(selection):
            query.matchers.add(type=operator, name=label, value=value)
    return packed(request.SerializeToString())


def _matchers(selection: Selection) -> Iterator[tuple[int, str, str]]:
    if selection.metric:
        yield _EQUAL, "__name__", selection.metric
    for operator, wanted in (
        (_EQUAL, selection.equal),
        (_MATCHING, selection.matching),
        (_EXCLUDING, selection.excluding),
    ):
        for label, value in wanted.items():
            yield operator, label, value


# Streamed answer of remote read: frames with length and checksum, each a message of series.
#
#     frame = length (varint) | CRC-32C of the message (4 bytes, big-endian) | ChunkedReadResponse
#
# A series may go on in the next frame. A faulty server writes its error as text behind the
# frames: the checksum distinguishes it from a frame.


_CHECKSUM_BYTES = 4
_XOR = 1
_ENCODINGS = {0: "of no stated kind", 2: "of native histograms", 3: "of native float histograms"}

Label = tuple[str, str]


class UnknownEncoding(ValueError):
    """Chunks of something else than floats; its text completes "The answer has chunks ..."."""


class NewerEncoding(UnknownEncoding):
    """Chunks of a kind that is not known here, perhaps floats, such as XOR2 (4)."""


@dataclass(slots=True)
class StoredChunks:
    """Series with their chunks, still packed; a series may come in pieces."""

    labels: list[Mapping[str, str]] = field(default_factory=list)
    chunks: list[int] = field(default_factory=list)  # of each series
    data: list[bytes] = field(default_factory=list)  # of each chunk

    @property
    def size_bytes(self) -> int:
        """Of all chunks."""
        return sum(map(len, self.data))


def read_frames(answer: bytes) -> StoredChunks:
    """All series of a whole answer.

    Raises Malformed when it is damaged or ends early, UnknownEncoding for chunks of anything but
    floats, NewerEncoding for those that are not known. Whether the chunks themselves are sound is
    found out by `decoded`.
    """
    found, seen = StoredChunks(), dict[Label, Label]()
    for message in _messages(answer):
        _add(found, message.series, seen)
    return found


def read_answers(answer: bytes, queries: int) -> list[StoredChunks]:
    """What each query of a question found, up to the last one of which there is a frame.

    Servers answer queries one after the other and number the frames of each. So whatever is before
    a frame of a later query is whole, even where nothing was found. Of queries behind the last
    frame it is unknown whether the server read them. Raises what `read_frames` raises, and
    Malformed where frames are out of order.
    """
    found, seen = list[StoredChunks](), dict[Label, Label]()
    for message in _messages(answer):
        if not max(len(found) - 1, 0) <= message.query < queries:
            raise Malformed("its queries are out of order")
        found += [StoredChunks() for _ in range(message.query + 1 - len(found))]
        _add(found[message.query], message.series, seen)
    return found


def decoded(answers: Sequence[StoredChunks]) -> list[StoredSeries]:
    """The samples of each answer; raises Malformed when a chunk of any of them is damaged.

    Decoding takes a step for each sample of the longest chunk, whether there are three chunks or a
    thousand. So answers of few series are better decoded together with those of many.
    """
    data = [chunk for one in answers for chunk in one.data]
    ends = np.fromiter(accumulate(map(len, data)), np.int64, len(data))
    starts = np.concatenate([np.zeros(1, np.int64), ends])[:-1]
    return list(_shares(answers, decode_xor_chunks(b"".join(data), ChunkPlaces(starts, ends))))


def _shares(answers: Sequence[StoredChunks], samples: DecodedChunks) -> Iterator[StoredSeries]:
    """What belongs to each answer."""
    chunk = sample = 0
    for one in answers:
        of_chunks = samples.counts[chunk : chunk + len(one.data)]
        of_series = np.repeat(np.arange(len(one.labels)), one.chunks)
        counts = np.bincount(of_series, weights=of_chunks, minlength=len(one.labels)).astype(
            np.int64
        )
        own = slice(sample, sample + int(of_chunks.sum()))
        yield StoredSeries(one.labels, counts, samples.times_ms[own], samples.values[own])
        chunk, sample = chunk + len(of_chunks), own.stop


def _messages(answer: bytes) -> Iterator[Any]:
    """Each frame's ChunkedReadResponse. All checksums are found right before the first."""
    begins, starts, ends, cut = _frames(answer)
    for begin, start, end in zip(begins, starts, ends, strict=True):
        sent = int.from_bytes(answer[start - _CHECKSUM_BYTES : start], "big")
        if google_crc32c.value(answer[start:end]) != sent:
            raise Malformed(f"the checksum of a frame is wrong{_text(answer[begin:])}")
    if cut is not None:
        raise Malformed(f"its last frame is not whole{_text(answer[cut:])}")
    for start, end in zip(starts, ends, strict=True):
        yield parsed(encoding.ChunkedReadResponse, answer[start:end])


def _frames(answer: bytes) -> tuple[list[int], list[int], list[int], int | None]:
    """Where frames begin, where their messages lie, and where one begins that is not whole."""
    begins: list[int] = []
    starts: list[int] = []
    ends: list[int] = []
    at = 0
    while at < len(answer):
        length, begin = read_varint(answer, at)
        start = begin + _CHECKSUM_BYTES
        if start + length > len(answer):
            return begins, starts, ends, at
        begins.append(at)
        starts.append(start)
        ends.append(start + length)
        at = start + length
    return begins, starts, ends, None


def _text(rest: bytes) -> str:
    """What stands instead of a frame, if it is text."""
    said = rest[:200].decode("ascii", "replace").strip()
    return f'; it reads "{said}"' if said.isprintable() and "\ufffd" not in said else ""


def _add(found: StoredChunks, series: Sequence[Any], seen: dict[Label, Label]) -> None:
    """Most labels repeat from series to series: `seen` has those that were read, for sharing."""
    for one in series:
        labels = ((label.name, label.value) for label in one.labels)
        found.labels.append(dict(seen.setdefault(label, label) for label in labels))
        found.chunks.append(len(one.chunks))
        for chunk in one.chunks:
            if chunk.encoding != _XOR:
                _refuse(chunk.encoding)
            found.data.append(chunk.data)


def _refuse(kind: int) -> NoReturn:
    if kind in _ENCODINGS:
        raise UnknownEncoding(_ENCODINGS[kind])
    raise NewerEncoding(f"of the unknown kind {kind}")


# The plain answer of remote read: a message of series with samples.
#
# A sample is 16 bytes, `09 <value> 10 <time>`, as long as its time has six bytes (1971 to 2109);
# then numpy reads all of a series at once. A value of zero is left out, which makes it `10 <time>`:
# idle clients have many of them. Other samples are read one by one.


_USUAL_BYTES, _ZERO_BYTES = 16, 7

Times = NDArray[np.int64]
Values = NDArray[np.float64]


class Histograms(ValueError):
    """A series of native histograms, which have no single value."""


def read_samples(answer: bytes) -> StoredSeries:
    """All series of an unpacked answer; raises Malformed, or Histograms for native ones."""
    response = parsed(encoding.ReadResponse, answer)
    series = [one for result in response.results for one in result.series]
    if any(one.histograms for one in series):
        raise Histograms("native histograms")
    parts = [_usual_samples(one.samples) or _any_samples(one.samples) for one in series]
    return StoredSeries(
        [{label.name: label.value for label in one.labels} for one in series],
        np.array([len(times) for times, _ in parts], np.int64),
        np.concatenate([np.zeros(0, np.int64), *(times for times, _ in parts)]),
        np.concatenate([np.zeros(0), *(values for _, values in parts)]),
    )


def _usual_samples(samples: Sequence[bytes]) -> tuple[Times, Values] | None:
    """The samples if each has the usual length or only lacks its value; None if one differs."""
    lengths = np.fromiter(map(len, samples), np.int64, len(samples))
    zero = lengths == _ZERO_BYTES
    if not (zero | (lengths == _USUAL_BYTES)).all():
        return None
    filled = b"".join(one if len(one) == _USUAL_BYTES else _NO_VALUE + one for one in samples)
    rows = np.frombuffer(filled, np.uint8).reshape(-1, _USUAL_BYTES)
    time_bytes = rows[:, 10:]
    if not ((rows[:, 0] == 9).all() and (rows[:, 9] == 0x10).all() and _six_bytes(time_bytes)):
        return None
    return _times_ms(time_bytes), _doubles(rows[:, 1:9])


_NO_VALUE = bytes([9]) + bytes(8)


def _any_samples(samples: Sequence[bytes]) -> tuple[Times, Values]:
    found = [parsed(encoding.Sample, one) for one in samples]
    return (
        np.array([one.time_ms for one in found], np.int64),
        np.array([one.value for one in found], np.float64),
    )


def _six_bytes(time_bytes: NDArray[np.uint8]) -> bool:
    return bool((time_bytes[:, :5] >= 0x80).all() and (time_bytes[:, 5] < 0x80).all())


def _times_ms(time_bytes: NDArray[np.uint8]) -> Times:
    times_ms = np.zeros(len(time_bytes), np.int64)
    for place in range(6):
        times_ms |= (time_bytes[:, place].astype(np.int64) & 0x7F) << (7 * place)
    return times_ms


def _doubles(value_bytes: NDArray[np.uint8]) -> Values:
    return np.ascontiguousarray(value_bytes).view("<f8").reshape(-1).astype(np.float64)


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
        raise answer.failures.broken_off(error) from error
    except (UnknownEncoding, Histograms) as error:
        failures = answer.failures
        raise InvalidResource(
            f"The answer from Prometheus at {failures.address} has chunks {error} instead of "
            f"counters or gauges. {failures.meanwhile} Select only metrics that are plain numbers.",
            Reason.METRICS_UNREADABLE,
        ) from error


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
        """None if there are chunks of another encoding among them."""
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
        raise answer.failures.too_large(answer.limit_bytes)
    return read_samples(unpacked(block))
