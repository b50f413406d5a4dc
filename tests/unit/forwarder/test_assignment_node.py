"""The text of the assignment's node: what is read, and what is left alone."""

import json

import pytest

from tidegate.errors import ForeignContent
from tidegate.forwarder.zookeeper_members import parse_assignment

PATH = "/tidegate/queues/shop/assignment"


def test_unknown_fields_are_ignored_and_no_bytes_are_no_assignment() -> None:
    node = {"v": 1, "topics": {"a": ["shop.5.0"], "b": []}, "since": 7}
    assert parse_assignment(json.dumps(node).encode(), PATH) == {"a": ("shop.5.0",), "b": ()}
    assert parse_assignment(b"", PATH) == {}


def test_a_newer_version_is_refused_whatever_else_it_says() -> None:
    with pytest.raises(ForeignContent, match=r"newer Tidegate \(version 2, known is 1\)"):
        parse_assignment(b'{"v": 2, "topics": {"a": ["shop.5.0"]}}', PATH)


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[]",
        b"{}",
        b'{"v": 1}',
        b'{"v": 1, "topics": []}',
        b'{"v": 1, "topics": {"a": 5}}',
        b"\xff",
    ],
)
def test_anything_else_is_refused_with_its_path(data: bytes) -> None:
    with pytest.raises(ForeignContent, match=PATH):
        parse_assignment(data, PATH)
