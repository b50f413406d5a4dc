"""Bulk reads on a kazoo client: MultiRead in chunks, and pipelined single reads for servers that do not know it."""

import time
from collections.abc import Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NoNodeError

from tidegate.kafka.zookeeper.multi_read import MultiRead

_READS_PER_REQUEST = 500


def read_bulk(client: KazooClient, paths: Sequence[str], *, wants_children: bool, timeout_seconds: float) -> list[Any]:
    """Data with stat, or child names, for each path; an error for one path stands in its place as an exception object.

    Raises UnimplementedError on servers before 3.6, which close the connection as well.
    """
    full = [with_chroot(client, path) for path in paths]
    sent = []
    for start in range(0, len(full), _READS_PER_REQUEST):
        request = MultiRead(full[start : start + _READS_PER_REQUEST], wants_children)
        sent.append(client.handler.async_result())
        client._call(request, sent[-1])
    deadline = time.monotonic() + timeout_seconds
    return [answer for result in sent for answer in result.get(timeout=_left(deadline))]


def read_one_by_one(client: KazooClient, paths: Sequence[str], *, wants_children: bool, timeout_seconds: float) -> list[Any]:
    """The same by single reads, all under way at once; for servers before 3.6."""
    call = client.get_children_async if wants_children else client.get_async
    return gather([call(path) for path in paths], timeout_seconds=timeout_seconds)


def gather(sent: Sequence[Any], *, timeout_seconds: float) -> list[Any]:
    """The answers of requests that are under way; an answer of "no" stands in its place, a lost connection is raised."""
    deadline = time.monotonic() + timeout_seconds
    answers: list[Any] = []
    for result in sent:
        try:
            answers.append(result.get(timeout=_left(deadline)))
        except (NoNodeError, NoAuthError) as error:
            answers.append(error)
    return answers


def with_chroot(client: KazooClient, path: str) -> str:
    """The path as the server knows it; kazoo adds the chroot only to requests of its own making."""
    return f"{client.chroot}{path}" if path != "/" else client.chroot or "/"


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.001)
