"""ZooKeeper's MultiRead (opcode 22, servers from 3.6): hundreds of reads in one request.

kazoo lacks it, and kazoo's own pipelining is bound by its Python loop, about 3,000 reads a second;
this reads 90,000. A missing node does not fail the others. Paths must have the chroot already,
because kazoo adds it only to its own requests.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from kazoo.client import KazooClient
from kazoo.exceptions import EXCEPTIONS
from kazoo.protocol.states import ZnodeStat

from tidegate.kafka.zookeeper.tree import MOST_REQUEST_BYTES

_READS_PER_REQUEST = 500
_HEADER = struct.Struct("!i?i")
_LENGTH = struct.Struct("!i")
_STAT = struct.Struct("!qqqqiiiqiiq")
_END = _HEADER.pack(-1, True, -1)
_GET_DATA = 4
_GET_CHILDREN = 8
_ERROR = -1

DataAnswer = tuple[bytes | None, ZnodeStat] | Exception
ChildrenAnswer = list[str] | Exception


@dataclass(frozen=True)
class MultiRead:
    """A request for kazoo; the answer is a list, one item a path, errors in their place."""

    paths: Sequence[str]
    wants_children: bool = False
    type: ClassVar[int] = 22

    def serialize(self) -> bytearray:
        """The request's body: per path a header, the path and "no watch"; then the end mark."""
        header = _HEADER.pack(_GET_CHILDREN if self.wants_children else _GET_DATA, False, -1)
        body = bytearray()
        for path in self.paths:
            encoded = path.encode()
            body += header + _LENGTH.pack(len(encoded)) + encoded + b"\0"
        return body + _END

    @staticmethod
    def deserialize(buffer: bytes, offset: int) -> list[DataAnswer | ChildrenAnswer]:
        """The answers in the order of the paths, from `offset` of the server's reply."""
        answers: list[DataAnswer | ChildrenAnswer] = []
        while True:
            kind, done, _ = _HEADER.unpack_from(buffer, offset)
            offset += _HEADER.size
            if done:
                return answers
            answer, offset = _READERS[kind](buffer, offset)
            answers.append(answer)


def multi_reads(paths: Sequence[str], *, wants_children: bool) -> Iterator[MultiRead]:
    """The requests that read all `paths` in their order.

    Bounded by bytes too: a name of 256 characters can be a path of 10 kB.
    """
    batch: list[str] = []
    size = _HEADER.size
    for path in paths:
        added = _HEADER.size + _LENGTH.size + len(path.encode()) + 1
        if batch and (len(batch) == _READS_PER_REQUEST or size + added > MOST_REQUEST_BYTES):
            yield MultiRead(batch, wants_children)
            batch, size = [], _HEADER.size
        batch.append(path)
        size += added
    if batch:
        yield MultiRead(batch, wants_children)


def send_multi_read(client: KazooClient, request: MultiRead) -> Any:
    """Send the request; the result is kazoo's asynchronous one, with `get(timeout=...)`.

    The only private member of kazoo that Tidegate uses: no public method sends a request of
    another's making. A test guards it.
    """
    result = client.handler.async_result()
    client._call(request, result)
    return result


def _read_data(buffer: bytes, offset: int) -> tuple[DataAnswer, int]:
    data, offset = _read_bytes(buffer, offset)
    return (data, ZnodeStat._make(_STAT.unpack_from(buffer, offset))), offset + _STAT.size


def _read_children(buffer: bytes, offset: int) -> tuple[ChildrenAnswer, int]:
    (count,) = _LENGTH.unpack_from(buffer, offset)
    offset += _LENGTH.size
    names = []
    for _ in range(max(count, 0)):
        name, offset = _read_bytes(buffer, offset)
        names.append((name or b"").decode())
    return names, offset


def _read_error(buffer: bytes, offset: int) -> tuple[Exception, int]:
    (code,) = _LENGTH.unpack_from(buffer, offset)
    return EXCEPTIONS[code](), offset + _LENGTH.size


def _read_bytes(buffer: bytes, offset: int) -> tuple[bytes | None, int]:
    (length,) = _LENGTH.unpack_from(buffer, offset)
    offset += _LENGTH.size
    return (None, offset) if length < 0 else (buffer[offset : offset + length], offset + length)


_READERS = {_GET_DATA: _read_data, _GET_CHILDREN: _read_children, _ERROR: _read_error}
