"""The streamed answer of remote read: frames with a length and a checksum, each a message of series with chunks.

    frame = length (varint) | CRC-32C of the message (4 bytes, big-endian) | ChunkedReadResponse
    ChunkedReadResponse { repeated ChunkedSeries series = 1 }    ChunkedSeries { repeated Label labels = 1; repeated Chunk chunks = 2 }
    Chunk { int64 min_time_ms = 1; int64 max_time_ms = 2; Encoding type = 3; bytes data = 4 }

A series may go on in the next frame. A server at fault writes its error as text behind the frames: the checksum tells it from one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np

from tidegate.rollup.transport.crc32c import checksums
from tidegate.rollup.transport.label_messages import read_labels
from tidegate.rollup.transport.series import StoredSeries
from tidegate.rollup.transport.wire import BYTES, Malformed, fields, read_varint
from tidegate.rollup.transport.xor_chunks import ChunkPlaces, DecodedChunks, decode_xor_chunks

_CHECKSUM_BYTES = 4
_XOR = 1
_ENCODINGS = {0: "of no stated kind", 2: "of native histograms", 3: "of native float histograms"}


class UnknownEncoding(ValueError):
    """Chunks that hold something else than floats; the message completes "The answer has chunks ..."."""


@dataclass(slots=True)
class StoredChunks:
    """Series with chunks that lie in `answer`, still packed. Labels may come twice: a series may be told in pieces."""

    answer: bytes
    labels: list[Mapping[str, str]] = field(default_factory=list)
    chunks: list[int] = field(default_factory=list)  # of each series
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)


def read_frames(answer: bytes) -> StoredChunks:
    """All series of a whole answer.

    Raises Malformed when it is damaged or ends early, UnknownEncoding for chunks of anything but floats. Whether the chunks themselves are
    sound is found out by `decoded`.
    """
    found = StoredChunks(answer)
    for start, end in _messages(answer):
        for series in fields(answer, start, end):
            if series.number == 1 and series.wire_type == BYTES:
                _read_series(found, series.start, series.end)
    return found


def decoded(answers: Sequence[StoredChunks]) -> list[StoredSeries]:
    """The samples of each answer; raises Malformed when a chunk of any of them is damaged.

    Decoding takes a step for each sample of the longest chunk, whether there are three chunks or a thousand. So answers of few series
    are better decoded together with those of many.
    """
    begins = accumulate((len(one.answer) for one in answers), initial=0)
    shifted = list(zip(begins, answers, strict=False))
    starts = np.array([begin + start for begin, one in shifted for start in one.starts], np.int64)
    ends = np.array([begin + end for begin, one in shifted for end in one.ends], np.int64)
    samples = decode_xor_chunks(b"".join(one.answer for one in answers), ChunkPlaces(starts, ends))
    return list(_shares(answers, samples))


def _shares(answers: Sequence[StoredChunks], samples: DecodedChunks) -> Iterator[StoredSeries]:
    """What belongs to each answer."""
    chunk = sample = 0
    for one in answers:
        of_chunks = samples.counts[chunk : chunk + len(one.starts)]
        of_series = np.repeat(np.arange(len(one.labels)), one.chunks)
        counts = np.bincount(of_series, weights=of_chunks, minlength=len(one.labels)).astype(np.int64)
        own = slice(sample, sample + int(of_chunks.sum()))
        yield StoredSeries(one.labels, counts, samples.times_ms[own], samples.values[own])
        chunk, sample = chunk + len(of_chunks), own.stop


def _messages(answer: bytes) -> Iterator[tuple[int, int]]:
    """Where each message lies, once all checksums are found right: in one go, for most frames are short."""
    begins, starts, ends, cut = _frames(answer)
    told = np.array([int.from_bytes(answer[start - _CHECKSUM_BYTES : start], "big") for start in starts], np.uint32)
    wrong = np.flatnonzero(checksums(answer, starts, ends) != told)
    if len(wrong):
        raise Malformed(f"the checksum of a frame is wrong{_text(answer[begins[wrong[0]] :])}")
    if cut is not None:
        raise Malformed(f"its last frame is not whole{_text(answer[cut:])}")
    return zip(starts, ends, strict=True)


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


def _text(rest: bytes) -> str:
    """What stands in place of a frame, if it is text."""
    said = rest[:200].decode("ascii", "replace").strip()
    return f'; it reads "{said}"' if said.isprintable() and "\ufffd" not in said else ""


def _read_series(found: StoredChunks, start: int, end: int) -> None:
    answer = found.answer
    labels: list[tuple[int, int]] = []
    chunks = 0
    for part in fields(answer, start, end):
        if part.number == 1 and part.wire_type == BYTES:
            labels.append((part.start, part.end))
        elif part.number == 2 and part.wire_type == BYTES:
            begin, stop = _usual_data(answer, part.start, part.end) or _data(answer, part.start, part.end)
            found.starts.append(begin)
            found.ends.append(stop)
            chunks += 1
    found.labels.append(read_labels(answer, labels))
    found.chunks.append(chunks)


def _usual_data(answer: bytes, start: int, end: int) -> tuple[int, int] | None:
    """Where the data of a chunk lies whose two times have six bytes each, as from 1971 to 2109: most of the work of reading an answer."""
    # 08 <time> 10 <time> 18 01 22 <length, up to two bytes>
    if end - start < 19 or answer[start] != 0x08 or answer[start + 7] != 0x10 or answer[start + 14 : start + 17] != b"\x18\x01\x22":
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
        raise UnknownEncoding(_ENCODINGS.get(encoding, f"of the unknown kind {encoding}"))
    return place
