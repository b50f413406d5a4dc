"""Whatever a server does, a read ends in time, with all samples or with an error that says what to
do.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.process import patience
from tests.goldens.golden import numbers
from tests.unit.prometheus.lying_server import LyingServer
from tests.unit.rollup.transport.chunk_writer import HISTOGRAM, chunked_series, frame
from tests.unit.rollup.transport.fake_prometheus import FakePrometheus
from tests.unit.rollup.transport.histories import BASE_MS
from tests.unit.rollup.transport.posting import (
    STREAMED,
    PostRequest,
    Respond,
    answering,
    asking,
    first_then,
)
from tidegate.errors import (
    Incomplete,
    InvalidResource,
    NotFound,
    TidegateError,
    Unauthorized,
    Unreachable,
)
from tidegate.prometheus.settings import BasicLogin, BearerLogin, PrometheusServer
from tidegate.rollup.samples import Selection
from tidegate.rollup.transport.exchange import HistorySettings, NoSlot, RequestSlots
from tidegate.rollup.transport.http_query import RangeSelector
from tidegate.rollup.transport.remote_read import RemoteReadChunks, RemoteReadSamples
from tidegate.rollup.transport.series import HistoryReader
from tidegate_logic.reasons import Reason

good = FakePrometheus([({"a": "1"}, [(BASE_MS, 1.0)])])
KINDS: list[type[HistoryReader]] = [RemoteReadChunks, RemoteReadSamples, RangeSelector]
every_kind = pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])


def series_read(
    respond: Respond, kind: type[HistoryReader] = RemoteReadChunks, **settings: Any
) -> tuple[int, LyingServer]:
    with answering(respond) as server, asking(kind, server, **settings) as way:
        return len(way.read(Selection("m"), BASE_MS, BASE_MS + 1000)), server


def failure(
    respond: Respond, kind: type[HistoryReader] = RemoteReadChunks, **settings: Any
) -> tuple[TidegateError, int]:
    with (
        answering(respond) as server,
        asking(kind, server, **settings) as way,
        pytest.raises(TidegateError) as raised,
    ):
        way.read(Selection("m"), BASE_MS, BASE_MS + 1000)
    return raised.value, len(server.seen)


def says(
    status: int, body: str | bytes = "no", kind: str = "text/plain", **headers: str
) -> Respond:
    return lambda request: request.send(status, body, kind, **headers)


def hang(request: PostRequest) -> None:
    request.server.gone.wait(20)


def hang_up(request: PostRequest) -> None:
    request.close_connection = True
    request.connection.close()


def break_off(request: PostRequest) -> None:
    request.send_response(200)
    request.send_header("Content-Type", STREAMED)
    request.send_header("Content-Length", "1000")
    request.end_headers()
    request.wfile.write(frame(chunked_series({"a": "1"}, [(BASE_MS, 1.0)])))
    request.close_connection = True


def break_off_between_pieces(request: PostRequest) -> None:
    content = frame(chunked_series({"a": "1"}, [(BASE_MS, 1.0)]))
    request.send_response(200)
    request.send_header("Content-Type", STREAMED)
    request.send_header("Transfer-Encoding", "chunked")
    request.end_headers()
    request.wfile.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")
    request.close_connection = True


def drip(request: PostRequest, kind: str = STREAMED, **headers: str) -> None:
    request.send_response(200)
    request.send_header("Content-Type", kind)
    for name, value in headers.items():
        request.send_header(name, value)
    request.end_headers()
    if headers.get("Transfer-Encoding"):
        request.wfile.write(b"fffff\r\n")
    while not request.server.gone.wait(0.02):
        request.wfile.write(b"\x00")
        request.wfile.flush()


def drip_a_chunk(request: PostRequest) -> None:
    drip(request, **{"Transfer-Encoding": "chunked"})


def drip_a_length(request: PostRequest) -> None:
    drip(request, **{"Content-Length": "1000000"})


@every_kind
@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_server_that_is_busy_is_asked_again(status: int, kind: type[HistoryReader]) -> None:
    found, server = series_read(first_then(says(status), good), kind)
    assert (found, len(server.seen)) == (1, 2)


@pytest.mark.parametrize(
    "trouble",
    [
        hang_up,
        break_off,
        break_off_between_pieces,
        says(200, frame(chunked_series({"a": "1"}, [(BASE_MS, 1.0)]))[:-1], STREAMED),
    ],
    ids=["hang up", "break off", "break off between pieces", "short frame"],
)
def test_an_answer_that_is_not_whole_is_asked_for_again(trouble: Respond) -> None:
    assert series_read(first_then(trouble, good))[0] == 1


@pytest.mark.parametrize("trouble", [break_off, break_off_between_pieces])
def test_an_answer_that_never_is_whole_is_an_error_and_never_a_part(trouble: Respond) -> None:
    error, asked = failure(trouble, attempts=2)
    assert isinstance(error, Unreachable)
    assert asked == 2


@every_kind
def test_a_server_that_stays_busy_is_given_up_after_some_attempts(
    kind: type[HistoryReader],
) -> None:
    error, asked = failure(
        says(
            503,
            '{"status":"error","errorType":"timeout","error":"query timed out"}',
            "application/json",
        ),
        kind,
        attempts=3,
    )
    assert isinstance(error, Unreachable)
    assert "query timed out" in error.message
    assert asked == 3


@pytest.mark.parametrize(
    ("respond", "kind"),
    [
        (says(400, "exceeded sample limit"), InvalidResource),
        (says(422, "too many samples"), InvalidResource),
        (says(401), Unauthorized),
        (says(403), Unauthorized),
        (says(302, "", Location="http://login.example/"), Unauthorized),
        (says(404), NotFound),
        (says(405), NotFound),
    ],
)
def test_failures_that_stay_are_asked_once(respond: Respond, kind: type[TidegateError]) -> None:
    error, asked = failure(respond)
    assert type(error) is kind
    assert asked == 1


@every_kind
@pytest.mark.parametrize("status", [200, 302, 400, 403, 404, 503])
@pytest.mark.parametrize("body", ["hunter2 in db-7", '{"error": "hunter2"}', "<html>hunter2"])
def test_of_a_body_that_is_no_prometheus_answer_nothing_is_shown(
    kind: type[HistoryReader], status: int, body: str
) -> None:
    error, _ = failure(says(status, body, Location="http://db-7/hunter2"), kind, attempts=1)
    assert "hunter2" not in error.message
    assert "db-7" not in error.message


@every_kind
def test_a_page_with_status_200_is_no_history(kind: type[HistoryReader]) -> None:
    error, asked = failure(says(200, "<html>Please log in</html>", "text/html"), kind)
    assert isinstance(error, Incomplete)
    assert "text/html" in error.message
    assert asked == 1


@pytest.mark.parametrize("kind", [RemoteReadChunks, RemoteReadSamples])
def test_an_answer_of_the_right_kind_with_other_content_is_refused(
    kind: type[HistoryReader],
) -> None:
    content_type = STREAMED if kind is RemoteReadChunks else "application/x-protobuf"
    assert isinstance(
        failure(says(200, "<html>" * 100, content_type), kind, attempts=1)[0], Incomplete
    )


def test_an_answer_that_prometheus_itself_calls_partial_is_not_used() -> None:
    body = (
        '{"status":"success","data":{"resultType":"matrix","result":[]},"warnings":["a store '
        'is down"]}'
    )
    error, _ = failure(says(200, body, "application/json"), RangeSelector)
    assert isinstance(error, Incomplete)
    assert "a store is down" in error.message


def test_native_histograms_are_a_clear_error(golden: Callable[[str], None]) -> None:
    error, _ = failure(
        says(200, frame(chunked_series({"a": "1"}, [(BASE_MS, 1.0)], encoding=HISTOGRAM)), STREAMED)
    )
    assert isinstance(error, InvalidResource)
    assert error.reason is Reason.METRICS_UNREADABLE
    golden(re.sub(r"127\.0\.0\.1:\d+", "SERVER", error.message))


@every_kind
def test_an_answer_above_the_limit_is_not_read_to_its_end(kind: type[HistoryReader]) -> None:
    many = FakePrometheus([({"a": str(number)}, [(BASE_MS, 1.0)]) for number in range(30)])
    error, asked = failure(many, kind, answer_limit_bytes=200)
    assert isinstance(error, Incomplete)
    assert asked == 1


def test_a_packed_answer_above_the_limit_is_not_unpacked(golden: Callable[[str], None]) -> None:
    # its header has 2 GB, for which no room is made
    error, _ = failure(
        says(200, b"\x80\x80\x80\x80\x08\x00", "application/x-protobuf"), RemoteReadSamples
    )
    assert isinstance(error, Incomplete)
    golden(re.sub(r"127\.0\.0\.1:\d+", "SERVER", error.message))


@pytest.mark.parametrize(
    ("trouble", "kind"),
    [
        (hang, RemoteReadChunks),
        (hang, RemoteReadSamples),
        (hang, RangeSelector),
        (drip, RemoteReadChunks),
        (drip_a_chunk, RemoteReadChunks),
        (drip_a_length, RemoteReadChunks),
    ],
)
def test_a_server_that_hangs_or_drips_is_given_up_at_the_deadline(
    trouble: Callable[[Any], None], kind: type[HistoryReader]
) -> None:
    started = time.monotonic()
    error, _ = failure(
        trouble, kind, read_timeout_seconds=0.2, deadline_seconds=0.5, request_timeout_seconds=0.4
    )
    assert isinstance(error, Unreachable)
    assert "it took too long" in error.message
    assert time.monotonic() - started < patience(5)


def test_one_hanging_request_does_not_use_up_the_time_of_the_next() -> None:
    assert (
        series_read(first_then(hang, good), read_timeout_seconds=0.2, deadline_seconds=10.0)[0] == 1
    )


@pytest.mark.parametrize("url", ["prometheus:9090", "http://", "ftp://x"])
def test_what_is_no_address_needs_correction(url: str) -> None:
    with pytest.raises(InvalidResource):
        RemoteReadChunks(HistorySettings(PrometheusServer(url))).read(Selection("m"), 0, 1)


def test_a_password_in_the_address_is_not_shown() -> None:
    settings = HistorySettings(PrometheusServer("http://me:hidden@127.0.0.1:1"), attempts=1)
    with pytest.raises(Unreachable) as raised:
        RemoteReadChunks(settings).read(Selection("m"), 0, 1)
    assert "hidden" not in raised.value.message
    assert "hidden" not in repr(settings)


@pytest.mark.parametrize(
    ("login", "header"),
    [(BearerLogin("s3cret"), "Bearer s3cret"), (BasicLogin("bob", "pw"), "Basic Ym9iOnB3")],
)
def test_the_login_is_sent(login: BearerLogin | BasicLogin, header: str) -> None:
    with (
        answering(good) as server,
        asking(RemoteReadChunks, server, server=PrometheusServer(server.url, login=login)) as way,
    ):
        way.read(Selection("m"), BASE_MS, BASE_MS + 1)
    assert server.seen[0].headers["authorization"] == header


def test_a_token_file_is_read_again_when_it_was_replaced(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first\n")
    with answering(good) as server, asking(RemoteReadChunks, server, token_file=str(path)) as way:
        way.read(Selection("m"), BASE_MS, BASE_MS + 1)
        (tmp_path / "new").write_text("second\n")
        (tmp_path / "new").rename(path)
        way.read(Selection("m"), BASE_MS, BASE_MS + 1)
    assert [seen.headers["authorization"] for seen in server.seen] == [
        "Bearer first",
        "Bearer second",
    ]


def test_a_token_file_that_is_missing_or_no_token_is_reported_without_its_content(
    tmp_path: Path,
) -> None:
    path = tmp_path / "token"
    assert "token" in failure(good, token_file=str(path), attempts=1)[0].message
    path.write_text("s3\ncret")
    error, asked = failure(good, token_file=str(path))
    assert isinstance(error, Unauthorized)
    assert "s3" not in error.message
    assert asked == 0


def test_headers_of_ones_own_go_with_every_request() -> None:
    with (
        answering(good) as server,
        asking(RemoteReadChunks, server, headers={"X-Scope-OrgID": "kafka"}) as way,
    ):
        way.read(Selection("m"), BASE_MS, BASE_MS + 1)
    assert server.seen[0].headers["x-scope-orgid"] == "kafka"


def test_no_more_requests_are_under_way_at_once_than_allowed() -> None:
    most, now, lock = 0, 0, threading.Lock()

    def counted(request: PostRequest) -> None:
        nonlocal most, now
        with lock:
            now += 1
            most = max(most, now)
        request.server.gone.wait(0.05)
        with lock:
            now -= 1
        good(request)

    def read(server: LyingServer) -> None:
        with asking(RemoteReadChunks, server, parallel_requests=2) as way:
            found.append(len(way.read(Selection("m"), BASE_MS, BASE_MS + 1000)))

    found: list[int] = []
    with answering(counted) as server:
        threads = [threading.Thread(target=read, args=(server,)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [1] * 6
    assert most == 2


def test_a_reader_without_a_slot_in_time_says_so(golden: Callable[[str], None]) -> None:
    with (
        answering(good) as server,
        RequestSlots(server.url, 1).taken(until_monotonic_seconds=0),
        asking(RemoteReadChunks, server, parallel_requests=1, deadline_seconds=0.1) as way,
        pytest.raises(Unreachable) as raised,
    ):
        way.read(Selection("m"), BASE_MS, BASE_MS + 1)
    assert 1 in numbers(raised.value.message)
    assert server.seen == []
    golden(re.sub(r"127\.0\.0\.1:\d+", "SERVER", raised.value.message))


def test_a_machine_without_a_folder_for_temporary_files_is_reported(
    monkeypatch: pytest.MonkeyPatch, golden: Callable[[str], None]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/proc/nowhere")
    error, asked = failure(good, attempts=1)
    assert asked == 0
    golden(
        re.sub(
            r"127\.0\.0\.1:\d+", "SERVER", re.sub(r"requests-\d+-?\d*", "requests-0", error.message)
        )
    )


def test_slots_of_one_server_do_not_hold_up_another() -> None:
    with RequestSlots("http://one", 1).taken(until_monotonic_seconds=0):
        with RequestSlots("http://two", 1).taken(until_monotonic_seconds=0):
            pass
        with pytest.raises(NoSlot), RequestSlots("http://one", 1).taken(until_monotonic_seconds=0):
            pass
