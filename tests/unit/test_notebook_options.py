"""Options of the data source: what they select, in which pieces it is read, and what is refused in
words.
"""

from collections.abc import Callable, Mapping

import pytest

from tidegate.errors import InvalidResource
from tidegate.notebook import labels_of, request_of
from tidegate.prometheus.settings import BasicLogin, BearerLogin
from tidegate.rollup.samples import Selection

BASE = {
    "url": "http://prometheus:9090",
    "query": "up",
    "start": "2026-01-01T00:10:00Z",
    "end": "2026-01-01T01:20:00Z",
}
TEN_PAST_MS = 1_767_226_200_000


def minutes(options: Mapping[str, str]) -> list[tuple[int, int]]:
    return [
        ((start - TEN_PAST_MS) // 60_000, (end - TEN_PAST_MS) // 60_000)
        for start, end in request_of({**BASE, **options}).pieces_ms()
    ]


@pytest.mark.parametrize(
    ("options", "pieces"),
    [
        ({}, [(0, 50), (50, 70)]),
        ({"chunkSeconds": "1800"}, [(0, 20), (20, 50), (50, 70)]),
        ({"CHUNKSECONDS": "86400"}, [(0, 70)]),
    ],
)
def test_pieces_lie_on_the_clock_and_cover_the_time_once(
    options: Mapping[str, str], pieces: list[tuple[int, int]]
) -> None:
    assert minutes(options) == pieces


def test_a_query_or_the_series_of_a_preset_is_read() -> None:
    assert request_of({**BASE, "query": 'kafka_up{broker="1"}'}).selection == Selection(
        "kafka_up", {"broker": "1"}
    )
    nic = request_of({**_without("query"), "series": "nics", "direction": "fetch"}).selection
    assert nic.metric == "node_network_transmit_bytes_total"


def test_a_login_is_taken_over_and_never_shown() -> None:
    token, basic = (
        request_of({**BASE, "token": "s3cret"}),
        request_of({**BASE, "username": "ann", "password": "s3cret"}),
    )
    assert (token.history.server.login, basic.history.server.login) == (
        BearerLogin("s3cret"),
        BasicLogin("ann", "s3cret"),
    )
    assert "s3cret" not in f"{token!r}{basic!r}"


def test_labels_and_headers_come_by_name() -> None:
    assert labels_of({**BASE, "labels": "broker, user"}) == ("broker", "user")
    assert request_of({**BASE, "header.X-Scope-OrgID": "team"}).history.headers == {
        "x-scope-orgid": "team"
    }


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({**BASE, "tokn": "x"}, "tokn"),
        ({"query": "up", "start": "1h"}, "url"),
        ({**BASE, "start": ""}, "start"),
        ({**BASE, "start": "yesterday"}, "yesterday"),
        ({**BASE, "end": "2026-01-01T00:00:00Z"}, "2026-01-01T00:00:00Z"),
        ({**BASE, "series": "nics"}, "series"),
        ({**BASE, "chunkSeconds": "0"}, "chunkSeconds"),
        ({**BASE, "username": "ann"}, "password"),
        ({**BASE, "keyFile": "key.pem"}, "certificateFile"),
        ({"url": "http://p", "start": "1h", "series": "nics", "preset": "Custom"}, "Custom"),
        ({"url": "http://p", "start": "1h", "series": "nic"}, "series=nic"),
        (
            {"url": "http://p", "start": "1h", "series": "nics", "preset": "nodeexporter"},
            "preset=nodeexporter",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(
    options: Mapping[str, str], named: str, golden: Callable[[str], None]
) -> None:
    with pytest.raises(InvalidResource) as refused:
        request_of(options)
    assert named in refused.value.message
    golden(refused.value.message)


def _without(name: str) -> dict[str, str]:
    return {key: value for key, value in BASE.items() if key != name}
