"""The wire format of protocol buffers, as far as remote read needs it: fields of a message in order, without copying them.

By hand rather than with the protobuf package: samples and chunks are cut out of the answer in bulk by numpy, which needs their places in
it, and what remains are five messages of two or three fields. So the worker needs neither generated code nor a second native library.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

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


# Requests and plain answers of remote read are packed in Snappy's block format. pyarrow, which
# rollups need anyway, has the codec.


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


# Labels of a series in remote read's messages: Label { string name = 1; string value = 2 }.


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
