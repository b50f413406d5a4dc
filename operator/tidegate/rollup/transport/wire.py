"""The wire format of protocol buffers, as far as remote read needs it: fields of a message in order, without copying them.

By hand rather than with the protobuf package: samples and chunks are cut out of the answer in bulk by numpy, which needs their places in
it, and what remains are five messages of two or three fields. So the worker needs neither generated code nor a second native library.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

# The checksum of remote read's frames, CRC-32C (Castagnoli), in numpy: Python's own zlib has the
# other polynomial only.
#
# The bytes are cut into lanes that are summed in lock-step; two neighbouring sums make one by
# shifting the left one over the bytes of the
# right one, which is linear over GF(2) and done by four table look-ups. About 200 MB/s, where a
# loop over bytes in Python does 5.


_POLYNOMIAL = 0x82F63B78  # reflected
_LANE_BYTES = 256
_LANES_AT_ONCE = 1 << 15  # eight megabytes, of which a copy is made
_ALL_ONES = 0xFFFF_FFFF

Words = NDArray[np.uint32]
Integers = NDArray[np.int64]


def crc32c(content: bytes | memoryview) -> int:
    """The checksum of `content`, as RFC 3720 defines it; of nothing it is 0."""
    return int(checksums(content, [0], [len(content)])[0])


def checksums(buffer: bytes | memoryview, starts: Sequence[int], ends: Sequence[int]) -> Words:
    """The checksum of each of these parts of the buffer. A server sends a frame for each series: thousands of short ones."""
    found = np.empty(len(starts), np.uint32)
    data, lengths = np.frombuffer(buffer, np.uint8), np.array(ends, np.int64) - np.array(starts, np.int64)
    lanes = np.maximum(-(-lengths // _LANE_BYTES), 1)
    blocks = (np.cumsum(lanes) - lanes) // _LANES_AT_ONCE
    for block in np.unique(blocks):
        own = np.flatnonzero(blocks == block)
        found[own] = _joined(_lane_sums(_lanes(data, np.take(ends, own), lengths[own], lanes=lanes[own])), lanes[own])
    # the standard begins with all ones, whose share depends on the length alone
    return found ^ _shifted_ones(lengths) ^ np.uint32(_ALL_ONES)


def _lanes(data: NDArray[np.uint8], ends: Integers, lengths: Integers, *, lanes: Integers) -> NDArray[np.uint8]:
    """Zeros in front leave a sum that begins with 0 as it is, so the lanes of each part are filled up from the left."""
    padded = np.zeros(int(lanes.sum()) * _LANE_BYTES, np.uint8)
    for until, end, length in zip((np.cumsum(lanes) * _LANE_BYTES).tolist(), ends.tolist(), lengths.tolist(), strict=True):
        padded[until - length : until] = data[end - length : end]
    return padded.reshape(-1, _LANE_BYTES)


def _lane_sums(lanes: NDArray[np.uint8]) -> Words:
    table, sums = _pair_table(), np.zeros(len(lanes), np.uint32)
    for column in np.ascontiguousarray(lanes.view("<u2").T):
        sums = table.take((sums ^ column) & 0xFFFF) ^ (sums >> 16)
    return sums


def _joined(sums: Words, lanes: Integers) -> Words:
    """The sum of each part from those of its lanes, of which the last `lanes` of a row are; parts of about a size are done at once."""
    found = np.empty(len(lanes), np.uint32)
    widths = 1 << np.ceil(np.log2(lanes)).astype(np.int64)
    lasts = np.cumsum(lanes)
    for width in np.unique(widths).tolist():
        own = np.flatnonzero(widths == width)
        place = lasts[own, None] - width + np.arange(width)
        rows = np.where(np.arange(width) >= width - lanes[own, None], sums.take(place, mode="clip"), np.uint32(0))
        found[own] = _row_sums(rows)
    return found


def _row_sums(rows: Words) -> Words:
    span_bytes = _LANE_BYTES
    while rows.shape[1] > 1:
        rows = _shifted(rows[:, 0::2], span_bytes) ^ rows[:, 1::2]
        span_bytes *= 2
    return rows[:, 0]


def _shifted(sums: Words, zero_bytes: int) -> Words:
    """Each sum after `zero_bytes` (a power of two) more zero bytes."""
    tables = _shift_tables(zero_bytes)
    shifted: Words = tables[0][sums & 0xFF]
    for place in (1, 2, 3):
        shifted = shifted ^ tables[place][(sums >> (8 * place)) & 0xFF]
    return shifted


def _shifted_ones(zero_bytes: Integers) -> Words:
    sums = np.full(len(zero_bytes), _ALL_ONES, np.uint32)
    for power in range(int(zero_bytes.max(initial=0)).bit_length()):
        own = np.flatnonzero(zero_bytes >> power & 1)
        sums[own] = _shifted(sums[own], 1 << power)
    return sums


@lru_cache(maxsize=1)
def _byte_table() -> Words:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_POLYNOMIAL), table >> 1).astype(np.uint32)
    return table


@lru_cache(maxsize=1)
def _pair_table() -> Words:
    """What each two bytes of a sum become: half the steps of one byte at a time."""
    table, every = _byte_table(), np.arange(1 << 16, dtype=np.uint32)
    for _ in range(2):
        every = table[every & 0xFF] ^ (every >> 8)
    return every


@lru_cache(maxsize=64)
def _shift_tables(zero_bytes: int) -> Words:
    """Four tables of 256: what each byte of a sum becomes after so many zero bytes."""
    every = np.arange(256, dtype=np.uint32)
    tables = np.stack([every << (8 * place) for place in range(4)]).astype(np.uint32)
    if zero_bytes > 1:
        return _shifted(_shifted(tables, zero_bytes // 2), zero_bytes // 2)
    one_more: Words = _byte_table()[tables & 0xFF] ^ (tables >> 8)
    return one_more


VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_FIXED_BYTES = {FIXED64: 8, FIXED32: 4}
_VARINT_BYTES = 10


class Malformed(ValueError):
    """Bytes that are no message of the kind expected; the message completes "The answer cannot be read: ..."."""


class Field(NamedTuple):
    """One field: `value` is the number of a varint; other kinds lie at [start, end) of the buffer."""

    number: int
    wire_type: int
    value: int
    start: int
    end: int


def read_varint(buffer: bytes, at: int, end: int) -> tuple[int, int]:
    """The unsigned number that begins at `at` and where it ends; raises Malformed when it is not whole before `end`."""
    value = 0
    for position, byte in enumerate(buffer[at : min(at + _VARINT_BYTES, end)]):
        value |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            return value, at + position + 1
    raise Malformed("a number in it does not end")


def write_varint(value: int) -> bytes:
    """The bytes of an integer; negative ones as protocol buffers' int64, in ten bytes."""
    value &= 0xFFFF_FFFF_FFFF_FFFF
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def signed(value: int) -> int:
    """A varint read as protocol buffers' int64."""
    value &= 0xFFFF_FFFF_FFFF_FFFF
    return value - (1 << 64) if value >> 63 else value


def fields(buffer: bytes, start: int, end: int) -> Iterator[Field]:
    """The fields of the message at [start, end) as they come, unknown ones too; raises Malformed where it is none."""
    at = start
    while at < end:
        key, at = read_varint(buffer, at, end)
        number, wire_type = key >> 3, key & 7
        value, begin = 0, at
        if wire_type == VARINT:
            value, at = read_varint(buffer, at, end)
        elif wire_type == BYTES:
            length, begin = read_varint(buffer, at, end)
            at = begin + length
        elif wire_type in _FIXED_BYTES:
            at += _FIXED_BYTES[wire_type]
        else:
            raise Malformed(f"a field in it is of the unknown kind {wire_type}")
        if at > end or number == 0:
            raise Malformed("a field in it does not fit into its message")
        yield Field(number, wire_type, value, begin, at)


def varint_field(number: int, value: int) -> bytes:
    """A field that holds an integer."""
    return write_varint(number << 3 | VARINT) + write_varint(value)


def bytes_field(number: int, content: bytes) -> bytes:
    """A field that holds text, bytes or a message."""
    return write_varint(number << 3 | BYTES) + write_varint(len(content)) + content


# Snappy's block format, in which remote read's questions and plain answers are packed, through
# pyarrow, which rollups need anyway.


_CODEC = "snappy"


def packed(content: bytes) -> bytes:
    """The block that holds `content`."""
    block: bytes = pa.compress(content, codec=_CODEC, asbytes=True)
    return block


def unpacked_bytes(block: bytes) -> int:
    """How long the content of a block says it is; raises Malformed where it does not say."""
    return read_varint(block, 0, len(block))[0]


def unpacked(block: bytes) -> bytes:
    """The content of a block; raises Malformed when it is damaged. See `unpacked_bytes` first: this makes room for what the block says."""
    try:
        content: bytes = pa.decompress(block, decompressed_size=unpacked_bytes(block), codec=_CODEC, asbytes=True)
    except (pa.ArrowException, OSError) as error:
        raise Malformed("it is not packed as it should be") from error
    return content


# The labels of a series in remote read's messages: Label { string name = 1; string value = 2 }.


_NAME, _VALUE = 0x0A, 0x12


def read_labels(buffer: bytes, places: Sequence[tuple[int, int]]) -> Mapping[str, str]:
    """Name -> value of the labels that lie at these places; raises Malformed where a label is no text."""
    try:
        return dict(_usual(buffer, start, end) or _any(buffer, start, end) for start, end in places)
    except UnicodeDecodeError:
        raise Malformed("a label in it is no UTF-8") from None


def _usual(buffer: bytes, start: int, end: int) -> tuple[str, str] | None:
    """Name and value in this order, both shorter than 128 bytes: nearly always, and much faster to read."""
    if end - start < 4 or buffer[start] != _NAME or (name_bytes := buffer[start + 1]) >= 0x80:
        return None
    middle = start + 2 + name_bytes
    if middle + 2 > end or buffer[middle] != _VALUE or buffer[middle + 1] != end - middle - 2 or end - middle - 2 >= 0x80:
        return None
    return buffer[start + 2 : middle].decode(), buffer[middle + 2 : end].decode()


def _any(buffer: bytes, start: int, end: int) -> tuple[str, str]:
    texts = {1: "", 2: ""}
    for part in fields(buffer, start, end):
        if part.wire_type == BYTES:
            texts[part.number] = buffer[part.start : part.end].decode()
    return texts[1], texts[2]
