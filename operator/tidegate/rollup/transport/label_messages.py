"""The labels of a series in remote read's messages: Label { string name = 1; string value = 2 }."""

from collections.abc import Mapping, Sequence

from tidegate.rollup.transport.wire import BYTES, Malformed, fields

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
