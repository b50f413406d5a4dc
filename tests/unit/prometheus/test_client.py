"""Whatever a server does, a question ends in time, with samples or with an error that says what to
do: in the streaming way for clients, and through prometheus-api-client for small answers.
"""

from __future__ import annotations

import gzip
import json
import socket
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace

import pytest

from lab.process import patience
from tests.goldens.golden import numbers
from tests.unit.prometheus.lying_server import LyingServer, Request, serving
from tidegate.errors import (
    Incomplete,
    InvalidResource,
    NotFound,
    TidegateError,
    Unauthorized,
    Unreachable,
)
from tidegate.prometheus.client import PrometheusClient
from tidegate.prometheus.series import Series
from tidegate.prometheus.settings import BasicLogin, BearerLogin, PrometheusServer
from tidegate_logic.reasons import Reason

SERIES = {"metric": {"broker": "1"}, "values": [[1000, "1"]]}
GOOD = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": [SERIES]}})


def good(request: Request) -> None:
    request.send(200, GOOD)


Way = Callable[[PrometheusClient, str, float], list[Series]]


def whole(client: PrometheusClient, promql: str, seconds: float) -> list[Series]:
    return client.query(promql, until_monotonic_seconds=time.monotonic() + seconds)


def streamed(client: PrometheusClient, promql: str, seconds: float) -> list[Series]:
    until = time.monotonic() + seconds
    return client.stream(promql, lambda series: series, until_monotonic_seconds=until)


@pytest.fixture(autouse=True, params=[whole, streamed], ids=["whole", "streamed"])
def way(request: pytest.FixtureRequest) -> Way:
    """How every question of a test is asked: each test holds for both ways."""
    ask.way = request.param  # type: ignore[attr-defined]
    found: Way = request.param
    return found


def ask(server: PrometheusServer, *, seconds: float = 5.0, promql: str = "up[60s]") -> list[Series]:
    client = PrometheusClient(server, pause=lambda seconds: None)
    try:
        return ask.way(client, promql, seconds)  # type: ignore[attr-defined,no-any-return]
    finally:
        client.close()


def failure(
    respond: Callable[[Request], None], *, seconds: float = 5.0, **settings: object
) -> tuple[TidegateError, LyingServer]:
    with serving(respond) as server, pytest.raises(TidegateError) as raised:
        ask(replace(PrometheusServer(server.url), **settings), seconds=seconds)  # type: ignore[arg-type]
    return raised.value, server


def test_samples_come_back_as_they_were_sent() -> None:
    with serving(good) as server:
        assert ask(PrometheusServer(server.url)) == [Series({"broker": "1"}, ((1000.0, 1.0),))]


def test_the_query_is_asked_as_it_is_and_the_server_knows_how_long_we_wait() -> None:
    with serving(good) as server:
        ask(PrometheusServer(server.url + "/"))
    assert server.seen[0].query == "up[60s]"
    assert server.seen[0].path.startswith("/api/v1/query?")
    assert "timeout=5000ms" in server.seen[0].path or "timeout=4" in server.seen[0].path


@pytest.mark.parametrize("status", [200, 405])
def test_a_query_too_long_for_an_address_is_posted(status: int) -> None:
    query = "{" + ",".join(f'a{number}="b c"' for number in range(500)) + "}[60s]"
    refused = nullcontext() if status == 200 else pytest.raises(NotFound, match="405")
    with serving(lambda request: request.send(status, GOOD)) as server, refused:
        ask(PrometheusServer(server.url, login=BearerLogin("s3cret")), promql=query)
    (seen,) = server.seen
    assert (seen.method, seen.query) == ("POST", query)
    assert seen.path.startswith("/api/v1/query?")
    assert seen.headers["authorization"] == "Bearer s3cret"


def test_no_answer_is_asked_for_in_packed_form() -> None:
    with serving(good) as server:
        ask(PrometheusServer(server.url))
    assert server.seen[0].headers["accept-encoding"] == "identity"


def test_one_connection_serves_many_questions_of_either_way(way: Way) -> None:
    with serving(good) as server:
        client = PrometheusClient(PrometheusServer(server.url))
        for one in (way, streamed, whole):
            one(client, "up[60s]", 5)
        client.close()
    assert len({seen.connection for seen in server.seen}) == 1


@pytest.mark.parametrize(
    ("login", "header"),
    [
        (None, None),
        (BearerLogin("s3cret"), "Bearer s3cret"),
        (BasicLogin("bob", "pässword"), "Basic Ym9iOnDDpHNzd29yZA=="),
    ],
)
def test_the_login_is_sent(login: BearerLogin | BasicLogin | None, header: str | None) -> None:
    with serving(good) as server:
        ask(PrometheusServer(server.url, login=login))
    assert server.seen[0].headers.get("authorization") == header


def test_nothing_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    with serving(good) as server:
        assert len(ask(PrometheusServer(server.url))) == 1


def test_a_proxy_is_used_when_it_is_named_for_prometheus(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(good) as proxy:
        monkeypatch.setenv("TIDEGATE_PROMETHEUS_PROXY", proxy.url)
        assert len(ask(PrometheusServer("http://prometheus.invalid:9090"))) == 1
    assert proxy.seen[0].path.startswith("http://prometheus.invalid:9090/api/v1/query?")


def test_a_proxy_that_is_away_is_named_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_PROMETHEUS_PROXY", "http://127.0.0.1:1")
    with pytest.raises(Unreachable, match=r"its proxy: .*refused"):
        ask(PrometheusServer("https://prometheus.invalid:9090"))


def test_a_login_that_no_header_can_carry_is_refused_without_showing_it() -> None:
    error, server = failure(good, login=BearerLogin("s3\ncret"))
    assert isinstance(error, Unauthorized)
    assert "s3" not in error.message
    assert server.seen == []


def test_a_server_that_is_down_is_unreachable_and_the_message_has_its_address_and_a_remedy() -> (
    None
):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(Unreachable, match="refused") as raised:
        ask(PrometheusServer(url))
    assert raised.value.reason is Reason.PROMETHEUS_UNREACHABLE
    assert url in raised.value.message
    assert "metrics.prometheus.url" in raised.value.message


def test_a_name_that_does_not_resolve_is_unreachable() -> None:
    with pytest.raises(Unreachable):
        ask(PrometheusServer("http://prometheus.invalid:9090"), seconds=1)


@pytest.mark.parametrize("url", ["prometheus:9090", "http://", "ftp://x", "http://[::1"])
def test_what_is_no_address_is_an_invalid_resource(url: str) -> None:
    with pytest.raises(InvalidResource):
        ask(PrometheusServer(url))


def test_a_password_in_the_address_is_not_shown() -> None:
    with pytest.raises(Unreachable) as raised:
        ask(PrometheusServer("http://me:hidden@127.0.0.1:1"), seconds=0.5)
    assert "hidden" not in raised.value.message


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_server_that_is_busy_is_asked_again(status: int) -> None:
    def busy_once(request: Request) -> None:
        request.send(status, "busy", "text/plain") if len(request.server.seen) == 1 else good(
            request
        )

    with serving(busy_once) as server:
        assert len(ask(PrometheusServer(server.url))) == 1
    assert len(server.seen) == 2


def test_a_server_that_stays_busy_is_asked_three_times_and_is_then_unreachable() -> None:
    error, server = failure(
        lambda request: request.send(
            503, json.dumps({"status": "error", "errorType": "timeout", "error": "query timed out"})
        )
    )
    assert isinstance(error, Unreachable)
    assert "query timed out" in error.message
    assert len(server.seen) == 3


def test_a_broken_connection_is_tried_again() -> None:
    def broken_once(request: Request) -> None:
        if len(request.server.seen) == 1:
            request.close_connection = True
            request.connection.close()
        else:
            good(request)

    with serving(broken_once) as server:
        assert len(ask(PrometheusServer(server.url))) == 1


def test_a_server_that_hangs_costs_no_more_than_the_time_given() -> None:
    started = time.monotonic()
    error, _ = failure(
        lambda request: request.server.gone.wait(10) and None, seconds=0.6, read_timeout_seconds=0.3
    )
    assert isinstance(error, Unreachable)
    assert error.reason is Reason.PROMETHEUS_UNREACHABLE
    assert time.monotonic() - started < patience(3)


def test_a_server_that_drips_costs_no_more_than_the_time_given() -> None:
    def drip(request: Request) -> None:
        request.send_response(200)
        request.send_header("Content-Length", "1000000")
        request.end_headers()
        while not request.server.gone.wait(0.05):
            request.wfile.write(b" ")

    started = time.monotonic()
    error, _ = failure(drip, seconds=0.6, read_timeout_seconds=0.3)
    assert isinstance(error, Unreachable)
    assert time.monotonic() - started < patience(3)


def test_an_answer_that_is_too_large_is_not_read_to_its_end() -> None:
    def huge(request: Request) -> None:
        request.send_response(200)
        request.send_header("Content-Length", str(10**12))
        request.end_headers()
        request.wfile.write(b'{"data": {"result": [')
        while True:
            request.wfile.write(json.dumps(SERIES).encode() + b", ")

    error, server = failure(huge, answer_limit_bytes=500_000)
    assert isinstance(error, Incomplete)
    assert "500 kB" in error.message
    assert len(server.seen) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(status: int) -> None:
    error, server = failure(
        lambda request: request.send(
            status, "", Location="https://login.example.com/?next=prometheus&token=abc"
        )
    )
    assert isinstance(error, Unauthorized)
    assert "login.example.com" not in error.message
    assert str(status) in error.message
    assert len(server.seen) == 1


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_login_is_unauthorized_and_not_tried_again(status: int) -> None:
    error, server = failure(
        lambda request: request.send(status, "<html>log in</html>", "text/html")
    )
    assert isinstance(error, Unauthorized)
    assert "metrics.prometheus.authentication" in error.message
    assert len(server.seen) == 1


def test_a_wrong_path_is_not_found() -> None:
    error, _ = failure(lambda request: request.send(404, "404 page not found", "text/plain"))
    assert isinstance(error, NotFound)


@pytest.mark.parametrize("status", [400, 422])
def test_a_query_that_cannot_be_carried_out_is_an_invalid_resource(status: int) -> None:
    error, server = failure(
        lambda request: request.send(
            status,
            json.dumps({"status": "error", "errorType": "bad_data", "error": "parse error: oops"}),
        )
    )
    assert isinstance(error, InvalidResource)
    assert error.reason is Reason.METRICS_QUERY_REFUSED
    assert "parse error: oops" in error.message
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("<html>log in</html>", "text/html"),
        ("", "application/json"),
        (
            '{"status": "success", "data": {"resultType": "scalar", "result": [1, "1"]}}',
            "application/json",
        ),
        ('{"status": "success", "data": {"result": []}}', "application/json"),
        ('{"status": "success"}', "application/json"),
        ('{"status": "success", "data": {"resultType": "matrix"}}', "application/json"),
        ("[]", "application/json"),
        (b"\x00\xff\xfe", "application/octet-stream"),
    ],
)
def test_garbage_with_status_200_is_incomplete_and_the_message_says_what_came(
    body: str | bytes, kind: str
) -> None:
    error, server = failure(lambda request: request.send(200, body, kind))
    assert isinstance(error, Incomplete)
    assert error.reason is Reason.METRICS_INCOMPLETE
    assert kind in error.message
    assert len(server.seen) == 1


@pytest.mark.parametrize("status", [200, 302, 400, 401, 403, 404, 418, 422, 500, 503])
@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("db-7.internal: hunter2", "text/plain; secret=hunter2"),
        ('{"error": "db-7.internal: hunter2"}', "application/json"),
        ('{"status": "error", "errorType": "hunter2", "error": "db-7.internal"}', "hunter2"),
        ('{"status": "hunter2", "data": {"resultType": "hunter2"}}', "application/json"),
        ('{"status": "success", "data": {"resultType": "hunter2"}}', "application/json"),
        ('{"status": "success", "warnings": ["db-7.internal: hunter2"]}', "application/json"),
        ("[" * 20_000 + "hunter2", "application/json"),
        ("<html>hunter2 at db-7.internal</html>", "text/html"),
    ],
)
def test_of_a_body_that_is_no_prometheus_answer_only_status_kind_and_length_are_shown(
    status: int, body: str, kind: str
) -> None:
    error, _ = failure(
        lambda request: request.send(status, body, kind, Location="http://db-7.internal/hunter2")
    )
    for secret in ("hunter2", "db-7"):
        assert secret not in error.message
    if status not in (200, 302, 404):
        assert str(status) in error.message
        assert f"{len(body)} bytes" in error.message


@pytest.mark.parametrize(
    "banner",
    [
        b"SSH-2.0-hunter2\r\n",
        b"HTTP/1.1 hunter2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3, 4hunter2\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nhunter2\r\n",
    ],
)
def test_of_what_does_not_speak_http_nothing_is_shown(banner: bytes) -> None:
    def answers(request: Request) -> None:
        request.wfile.write(banner)
        request.close_connection = True

    error, _ = failure(answers)
    assert "hunter2" not in error.message


def test_a_refusal_that_comes_in_parts_is_read_to_its_end() -> None:
    text = json.dumps({"status": "error", "errorType": "bad_data", "error": "parse error: oops"})

    def in_parts(request: Request) -> None:
        request.send_response(400)
        request.send_header("Content-Length", str(len(text)))
        request.end_headers()
        for start in range(0, len(text), 20):
            request.wfile.write(text[start : start + 20].encode())
            request.wfile.flush()
            time.sleep(0.01)

    error, _ = failure(in_parts)
    assert "parse error: oops" in error.message


def _breaks_off(request: Request) -> None:
    request.send_header("Content-Length", str(len(GOOD) + 10))


def _ends_too_soon(request: Request) -> None:
    request.send_header("Content-Length", "30")


def _never_ends_its_pieces(request: Request) -> None:
    request.send_header("Transfer-Encoding", "chunked")


@pytest.mark.parametrize(
    ("promise", "framing"),
    [(_breaks_off, b""), (_ends_too_soon, b""), (_never_ends_its_pieces, b"1e\r\n")],
    ids=["before its length", "cut by a proxy", "between pieces"],
)
def test_an_answer_that_breaks_off_is_asked_for_again_and_the_message_says_after_how_many_bytes(
    promise: Callable[[Request], None], framing: bytes, golden: Callable[[str], None]
) -> None:
    def breaks_off(request: Request) -> None:
        request.send_response(200)
        request.send_header("Connection", "close")  # else the next attempt may meet its end
        promise(request)
        request.end_headers()
        request.wfile.write(framing + GOOD[:30].encode())
        request.close_connection = True

    error, server = failure(breaks_off, seconds=30.0)  # for three attempts on a busy machine, too
    assert isinstance(error, Incomplete)
    assert error.reason is Reason.METRICS_INCOMPLETE
    assert numbers(error.message) >= {30}
    assert len(server.seen) == 3
    golden(error.message.replace(server.url, "http://prometheus:9090"))


def test_an_answer_with_warnings_is_not_used_and_the_warnings_are_shown() -> None:
    document = {**json.loads(GOOD), "warnings": ["store 10.0.0.7:10901 did not answer"]}
    error, _ = failure(lambda request: request.send(200, json.dumps(document)))
    assert isinstance(error, Incomplete)
    assert "store 10.0.0.7:10901 did not answer" in error.message


def test_a_packed_answer_counts_by_its_unpacked_size() -> None:
    bomb = gzip.compress(b" " * 5_000_000)
    error, _ = failure(
        lambda request: request.send(200, bomb, **{"Content-Encoding": "gzip"}),
        answer_limit_bytes=1_000_000,
    )
    assert isinstance(error, Incomplete)
    assert "1 MB" in error.message


def test_an_authority_file_that_is_missing_is_named() -> None:
    with pytest.raises(Unreachable, match="trustedCertificates"):
        ask(PrometheusServer("https://127.0.0.1:1", ca_file="/does/not/exist.pem"), seconds=0.5)


@pytest.mark.parametrize(
    "item",
    [
        7,
        {},
        {"metric": {"broker": 1}, "values": [[1, "1"]]},
        {"metric": {}, "values": [[1, "x"]]},
        {"metric": {}, "values": [[2, "1"], [1, "1"]]},
        {"metric": {}, "values": 7},
    ],
)
def test_a_series_that_is_none_is_incomplete(item: object) -> None:
    document = {"status": "success", "data": {"resultType": "matrix", "result": [item]}}
    error, server = failure(lambda request: request.send(200, json.dumps(document)))
    assert isinstance(error, Incomplete)
    assert error.reason is Reason.METRICS_INCOMPLETE
    assert len(server.seen) == 1


@pytest.mark.parametrize("item", [{"metric": {}, "value": 7}, {"metric": {}, "value": [1]}])
def test_one_moment_that_is_none_is_incomplete(item: object) -> None:
    document = {"status": "success", "data": {"resultType": "vector", "result": [item]}}
    error, _ = failure(lambda request: request.send(200, json.dumps(document)))
    assert isinstance(error, Incomplete)


def test_samples_of_one_moment_come_from_a_small_question_and_are_none_of_a_range(
    way: Way,
) -> None:
    item = {"metric": {"broker": "1"}, "value": [1000, "7"]}
    histogram = {"metric": {"broker": "2"}, "histogram": [1000, {"count": "1"}]}
    document = {
        "status": "success",
        "data": {"resultType": "vector", "result": [item, histogram]},
    }
    with serving(lambda request: request.send(200, json.dumps(document))) as server:
        if way is whole:
            assert ask(PrometheusServer(server.url)) == [Series({"broker": "1"}, ((1000.0, 7.0),))]
        else:
            with pytest.raises(Incomplete, match="vector"):
                ask(PrometheusServer(server.url))


def test_names_are_utf_8_whatever_the_header_says() -> None:
    document = GOOD.replace('"1"}', '"ä"}')
    with serving(lambda request: request.send(200, document, "text/plain")) as server:
        assert ask(PrometheusServer(server.url))[0].labels == {"broker": "ä"}


def test_a_store_that_did_not_answer_is_a_warning_in_victoriametrics_words_too() -> None:
    document = {**json.loads(GOOD), "isPartial": True}
    error, _ = failure(lambda request: request.send(200, json.dumps(document)))
    assert isinstance(error, Incomplete)
    assert "isPartial" in error.message
