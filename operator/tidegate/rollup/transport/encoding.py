"""The encodings of remote read: protocol buffers' messages, Snappy blocks, chunks of samples."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

# The messages of Prometheus' prompb/remote.proto and types.proto that a reader needs: each field
# with its number and kind, `*` where it repeats. A sample is kept as its bytes, so that numpy can
# read all of them at once.


_MESSAGES = {
    "LabelMatcher": "1 type int32, 2 name string, 3 value string",
    "Query": "1 start_ms int64, 2 end_ms int64, 3 matchers *LabelMatcher",
    "ReadRequest": "1 queries *Query, 2 kinds *int32",
    "Label": "1 name string, 2 value string",
    "Sample": "1 value double, 2 time_ms int64",
    "TimeSeries": "1 labels *Label, 2 samples *bytes, 4 histograms *bytes",
    "QueryResult": "1 series *TimeSeries",
    "ReadResponse": "1 results *QueryResult",
    "WriteRequest": "1 series *TimeSeries",
    "Chunk": "1 min_time_ms int64, 2 max_time_ms int64, 3 encoding int32, 4 data bytes",
    "ChunkedSeries": "1 labels *Label, 2 chunks *Chunk",
    "ChunkedReadResponse": "1 series *ChunkedSeries, 2 query int64",
}


class Malformed(ValueError):
    """Bytes of another kind than expected; its text completes "The answer cannot be read: ..."."""


def _classes() -> dict[str, Any]:
    proto = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="remote.proto", package="r", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, field, kind in (one.split(" ") for one in fields.split(", ")):
            described = message.field.add(name=field, number=int(number))
            repeats, kind = kind.startswith("*"), kind.removeprefix("*")
            described.label = proto.LABEL_REPEATED if repeats else proto.LABEL_OPTIONAL
            if kind in _MESSAGES:
                described.type, described.type_name = proto.TYPE_MESSAGE, f".r.{kind}"
            else:
                described.type = proto.Type.Value(f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"r.{name}"))
        for name in _MESSAGES
    }


_CLASSES = _classes()
Label, Sample, TimeSeries = (_CLASSES[name] for name in ("Label", "Sample", "TimeSeries"))
Chunk, ChunkedSeries = _CLASSES["Chunk"], _CLASSES["ChunkedSeries"]
ReadRequest, ReadResponse = _CLASSES["ReadRequest"], _CLASSES["ReadResponse"]
ChunkedReadResponse, WriteRequest = _CLASSES["ChunkedReadResponse"], _CLASSES["WriteRequest"]


def parsed(kind: Any, content: bytes) -> Any:
    """The message of this class in `content`; raises Malformed where it holds something else."""
    try:
        return kind.FromString(content)
    except DecodeError as error:
        raise Malformed("it is not a message of remote read") from error


def read_varint(buffer: bytes, at: int) -> tuple[int, int]:
    """The unsigned number at `at`, and its end; raises Malformed where it does not end."""
    value = 0
    for position, byte in enumerate(buffer[at : at + _VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            return value, at + position + 1
    raise Malformed("a number in it does not end")


# Requests and plain answers of remote read are Snappy blocks; pyarrow has the codec.


_CODEC = "snappy"
_VARINT_BYTES = 10


def packed(content: bytes) -> bytes:
    """The block that holds `content`."""
    block: bytes = pa.compress(content, codec=_CODEC, asbytes=True)
    return block


def unpacked_bytes(block: bytes) -> int:
    """How long the content of a block says it is; raises Malformed where it does not say."""
    return read_varint(block, 0)[0]


def unpacked(block: bytes) -> bytes:
    """The content of a block; raises Malformed when it is damaged.

    Check `unpacked_bytes` first: this allocates what the block says.
    """
    try:
        content: bytes = pa.decompress(
            block, decompressed_size=unpacked_bytes(block), codec=_CODEC, asbytes=True
        )
    except (pa.ArrowException, OSError) as error:
        raise Malformed("it is not packed as it should be") from error
    return content


# Prometheus' compressed chunks of float samples, decoded all at once: one numpy step for the n-th
# sample of every chunk. A chunk is a big-endian count of samples, then a stream of bits
# (Prometheus' tsdb/docs/format/chunks.md): the first time as a signed varint and the first value in
# 64 bits; the first distance in time as a varint; from then on for each time the change of that
# distance under a prefix of one to four bits, and for each value what differs from the one before
# (XOR): nothing, bits within the span used before, or bits within a new span that is given first.


Integers = NDArray[np.int64]
Bits = NDArray[np.uint64]

_HEADER_BYTES = 2
_SAMPLES_AT_ONCE = 1 << 18  # so that a batch stays in the processor's cache
_LEAST_BITS = 2  # of a sample: a distance as before and a value as before
# By the four bits in front of a time: how many of them are the prefix, how many bits of change
# follow, the largest change of that width, and how many numbers there are of it. 1111 is rare and
# goes apart.
_PREFIX_BITS = np.array([1] * 8 + [2] * 4 + [3] * 2 + [4, 4], np.uint64)
_CHANGE_BITS = np.array([0] * 8 + [14] * 4 + [17] * 2 + [20, 64], np.uint64)
_LARGEST_CHANGE = (np.uint64(1) << _CHANGE_BITS) >> np.uint64(1)
_CHANGES = np.uint64(1) << _CHANGE_BITS
# By the two bits in front of a value: how many bits come before what differs. 11 has a new span.
_CONTROL_BITS = np.array([1, 1, 2, 13], np.uint64)
_NEW_SPAN = 3


@dataclass(frozen=True, slots=True)
class ChunkPlaces:
    """Where the chunks lie in a buffer: [starts, ends) in bytes, in the order of their samples."""

    starts: Integers
    ends: Integers


@dataclass(frozen=True, slots=True)
class DecodedChunks:
    """The samples of all chunks, one chunk after the other; chunk i has `counts[i]` of them."""

    counts: Integers
    times_ms: Integers
    values: NDArray[np.float64]


def decode_xor_chunks(buffer: bytes, places: ChunkPlaces) -> DecodedChunks:
    """Every sample of these chunks; raises Malformed when one does not hold what it announces."""
    words = _words(buffer)
    counts = _counts(buffer, places)
    firsts, total = np.cumsum(counts) - counts, int(counts.sum())
    times_ms, values = np.empty(total, np.int64), np.empty(total, np.uint64)
    for batch in _batches(counts):
        chunks = _Batch(words, places.starts[batch], counts[batch])
        chunks.decode(times_ms, values, firsts[batch])
        chunks.require_ends_within(places.ends[batch])
    return DecodedChunks(counts, times_ms, values.view(np.float64))


def _batches(counts: Integers) -> Iterator[Integers]:
    """The chunks with samples, most first, in batches of so many samples."""
    by_count = np.argsort(-counts, kind="stable")
    by_count = by_count[: int(np.count_nonzero(counts))]
    at = 0
    while at < len(by_count):
        size = max(_SAMPLES_AT_ONCE // int(counts[by_count[at]]), 1)
        yield by_count[at : at + size]
        at += size


def _words(buffer: bytes) -> Bits:
    """The buffer as 64-bit words, and two of zeros so that a look at bits never ends outside."""
    padded = np.zeros((len(buffer) // 8 + 3) * 8, np.uint8)
    padded[: len(buffer)] = np.frombuffer(buffer, np.uint8)
    return padded.view(">u8").astype(np.uint64)


def _counts(buffer: bytes, places: ChunkPlaces) -> Integers:
    if np.any(places.ends - places.starts < _HEADER_BYTES) or np.any(places.ends > len(buffer)):
        raise Malformed("a chunk in it is shorter than its own header")
    data = np.frombuffer(buffer, np.uint8)
    counts = data[places.starts].astype(np.int64) * 256 + data[places.starts + 1]
    if np.any(counts * _LEAST_BITS > (places.ends - places.starts) * 8):
        raise Malformed("a chunk in it announces more samples than it has bits for")
    return counts


class _Batch:
    """Chunks in falling order of counts: those with an n-th sample are always the first ones."""

    def __init__(self, words: Bits, starts: Integers, counts: Integers) -> None:
        self._words, self._next_words = words, words[1:]
        self._falling = -counts
        # the next bit of each chunk
        self._at = (starts + _HEADER_BYTES).astype(np.uint64) * np.uint64(8)

    def decode(self, times_ms: Integers, values: Bits, firsts: Integers) -> None:
        """Put times and bits of values to where each chunk's samples go, from `firsts` on."""
        chunks = len(firsts)
        times_ms[firsts] = time_ms = _zigzag(self._varint(chunks))
        values[firsts] = value = self._take(chunks, 64)
        distance = np.zeros(0, np.int64)
        self._shift, self._width = np.zeros(chunks, np.uint64), np.zeros(chunks, np.uint64)
        for index in range(1, -int(self._falling[0])):
            live = self._live(index)
            if index == 1:
                distance, ahead = self._varint(live).view(np.int64), self._peek(live)
            else:
                change, ahead = self._change(live)
                distance = distance[:live] if change is None else distance[:live] + change
            time_ms = time_ms[:live] + distance
            value = value[:live] ^ self._difference(live, ahead)
            places = firsts[:live] + index
            times_ms[places], values[places] = time_ms, value

    def require_ends_within(self, ends: Integers) -> None:
        """Raise Malformed if a chunk was read beyond its end."""
        if np.any(self._at > ends.astype(np.uint64) * np.uint64(8)):
            raise Malformed("a chunk in it ends before its last sample")

    def _live(self, index: int) -> int:
        """How many chunks have a sample with this index."""
        return int(np.searchsorted(self._falling, -index, side="left"))

    def _peek(self, live: int) -> Bits:
        """The next 64 bits of each chunk."""
        return self._look(self._at[:live])

    def _look(self, at: Bits) -> Bits:
        # indices are signed, as numpy wants them
        word, used = (at >> np.uint64(6)).view(np.int64), at & np.uint64(63)
        ahead: Bits = self._words.take(word, mode="clip") << used
        # a shift by 64 gives 0 in numpy, as wanted
        ahead |= self._next_words.take(word, mode="clip") >> (np.uint64(64) - used)
        return ahead

    def _take(self, live: int, width: int) -> Bits:
        taken = self._peek(live) >> np.uint64(64 - width)
        self._at[:live] += np.uint64(width)
        return taken

    def _varint(self, live: int) -> Bits:
        value, going_on = np.zeros(live, np.uint64), np.ones(live, np.bool_)
        for place in range(_VARINT_BYTES):
            byte = self._peek(live) >> np.uint64(56)
            value |= np.where(
                going_on, (byte & np.uint64(0x7F)) << np.uint64(7 * place), np.uint64(0)
            )
            self._at[:live] += np.where(going_on, np.uint64(8), np.uint64(0))
            going_on &= byte >= 0x80
            if not going_on.any():
                return value
        raise Malformed("a time in a chunk of it does not end")

    def _change(self, live: int) -> tuple[Integers | None, Bits]:
        """By how much the distance in time changes, and at least 40 bits of what comes next.

        None if none does: Prometheus stores scrapes that are a little late as if they were not.
        """
        ahead = self._peek(live)
        kind = (ahead >> np.uint64(60)).view(np.int64)
        if kind.max() < 8:
            self._at[:live] += np.uint64(1)
            return None, ahead << np.uint64(1)
        prefix, width = _PREFIX_BITS.take(kind), _CHANGE_BITS.take(kind)
        raw = (ahead << prefix) >> (np.uint64(64) - width)
        # a change is in (-2^(width-1), 2^(width-1)]: the half, unlike in two's complement, is > 0
        raw -= (raw > _LARGEST_CHANGE.take(kind)) * _CHANGES.take(kind)
        change: Integers = raw.view(np.int64)
        self._at[:live] += prefix + width
        far = width == 64
        if not far.any():
            return change, ahead << (prefix + width)
        change[far] = self._look(self._at[:live][far] - np.uint64(64)).view(np.int64)
        return change, self._peek(live)

    def _difference(self, live: int, ahead: Bits) -> Bits:
        """The bits in which the value differs from the one before.

        A new span is five bits of zeros in front and six of width, where 0 means 64.
        """
        kind = (ahead >> np.uint64(62)).view(np.int64)
        self._at[:live] += _CONTROL_BITS.take(kind)
        self._shift, self._width = self._shift[:live], self._width[:live]
        starts = np.flatnonzero(kind == _NEW_SPAN)
        if len(starts):
            span = ahead[starts] >> np.uint64(51)
            width = span & np.uint64(63)
            width[width == 0] = 64
            self._width[starts] = width
            self._shift[starts] = np.uint64(64) - (span >> np.uint64(6) & np.uint64(31)) - width
        given_bits = self._width * (ahead >> np.uint64(63))
        difference = (self._peek(live) >> (np.uint64(64) - given_bits)) << self._shift
        self._at[:live] += given_bits
        return difference


def _zigzag(raw: Bits) -> Integers:
    return (raw >> np.uint64(1)).view(np.int64) ^ -(raw & np.uint64(1)).view(np.int64)
