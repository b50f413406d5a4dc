"""The source on a made-up API server on loopback: what the real one does seldom, such as a watch that
is too old or breaks off, and reviews that are counted. `tests/integration/console` has the real one.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from kubernetes import client as kubernetes_client

from lab.process import patience
from tidegate.console.access import Access, Refused
from tidegate.console.source import LiveSource, read_trails
from tidegate.kube.api import BUSINESS_TIERS, DELAY_QUEUES
from tidegate.kube.client import KubernetesClient

END = object()


class ApiServer(ThreadingHTTPServer):
    """Lists are `items`; a watch sends what is put into `events`; reviews know the token `good`.

    Lists of DelayQueues are `queues`. With a status that is not 200 that is all the answer, and a
    watch of queues ends.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.items: list[dict[str, Any]] = []
        self.events: queue.Queue[Any] = queue.Queue()
        self.lists = 0
        self.asked: list[str] = []
        self.queues: list[dict[str, Any]] = []
        self.queues_status = self.tiers_status = 200
        self.looks_for_queues = 0
        self.reviews: list[dict[str, Any]] = []
        self.may_list = {("businesstiers", "mine")}


class _Handler(BaseHTTPRequestHandler):
    server: ApiServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, body: Any, status: int = 200) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        is_tiers = "businesstiers" in self.path
        is_queues = "delayqueues" in self.path
        status = self.server.queues_status if is_queues else 200
        status = self.server.tiers_status if is_tiers else status
        self.server.looks_for_queues += is_queues
        self.server.lists += is_tiers and "watch=true" not in self.path
        if status != 200:
            self._answer({"kind": "Status", "code": status, "message": "no"}, status)
            return
        if "watch=true" not in self.path:
            items = self.server.items if is_tiers else self.server.queues if is_queues else []
            self._answer({"metadata": {"resourceVersion": "5"}, "items": items})
            return
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while True:
            try:
                event = self.server.events.get(timeout=0.05) if is_tiers else None
            except queue.Empty:
                event = None
            if event is END or (is_queues and self.server.queues_status != 200):
                self.wfile.write(b"0\r\n\r\n")
                return
            if event is None:
                if getattr(self.server, "ended", False):
                    self.close_connection = True
                    return
                if not is_tiers:
                    time.sleep(0.05)
                continue
            line = json.dumps(event).encode() + b"\n"
            for part in (line[:7], line[7:]):  # a line comes in pieces
                self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
                self.wfile.flush()

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.reviews.append(body)
        if body["kind"] == "TokenReview":
            good = body["spec"]["token"] == "good"
            user = {"username": "ann", "uid": "1", "groups": ["team"], "extra": {"a": ["b"]}}
            self._answer({"status": {"authenticated": good, **({"user": user} if good else {})}})
            return
        asked = body["spec"]["resourceAttributes"]
        allowed = (asked["resource"], asked["namespace"]) in self.server.may_list
        self._answer({"status": {"allowed": allowed}})


@pytest.fixture
def api() -> Iterator[ApiServer]:
    server = ApiServer()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield server
    server.ended = True  # type: ignore[attr-defined]
    server.shutdown()
    server.server_close()


def client_of(api: ApiServer) -> kubernetes_client.ApiClient:
    settings = kubernetes_client.Configuration()
    settings.host = f"http://127.0.0.1:{api.server_port}"
    settings.retries = False
    return kubernetes_client.ApiClient(settings)


@pytest.fixture
def source(api: ApiServer) -> Iterator[LiveSource]:
    api_client = client_of(api)
    made = LiveSource(KubernetesClient(api_client, "test"), api_client, (), lambda _: None)
    yield made
    made.close()


def tier(name: str, version: str = "6") -> dict[str, Any]:
    metadata = {"name": name, "namespace": "mine", "uid": name, "resourceVersion": version}
    return {"metadata": metadata, "spec": {}}


def until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + patience(20)
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def names(source: LiveSource) -> set[str]:
    return {one["metadata"]["name"] for one in source.objects().tiers}


def test_a_list_and_its_watch_are_followed(api: ApiServer, source: LiveSource) -> None:
    api.items = [tier("first")]
    assert source.objects().heard_at_seconds is None
    source.start()
    until(lambda: names(source) == {"first"}, "the list")
    before = source.changes()
    api.events.put({"type": "ADDED", "object": tier("second", "7")})
    until(lambda: names(source) == {"first", "second"}, "a new one")
    assert source.changes() != before
    api.events.put({"type": "DELETED", "object": tier("first", "8")})
    until(lambda: names(source) == {"second"}, "one less")
    until(lambda: source.objects().problem == "", "all kinds")
    assert source.objects().heard_at_seconds is not None
    known, lists = source.changes(), api.lists
    api.events.put({"type": "BOOKMARK", "object": tier("", "9")})
    api.events.put(END)  # a watch ends after its time, and goes on from where it was
    api.events.put({"type": "ADDED", "object": tier("third", "10")})
    until(lambda: names(source) == {"second", "third"}, "after the end of the first watch")
    assert api.lists == lists
    assert source.changes() != known


def test_a_watch_that_is_too_old_begins_with_a_list(api: ApiServer, source: LiveSource) -> None:
    api.items = [tier("old")]
    source.start()
    until(lambda: names(source) == {"old"}, "the list")
    api.items = [tier("new")]
    api.events.put({"type": "ERROR", "object": {"code": 410, "message": "too old"}})
    until(lambda: names(source) == {"new"}, "the second list")
    until(lambda: source.objects().problem == "", "no problem is left of it")


def test_what_was_known_stays_while_the_server_is_away(api: ApiServer, source: LiveSource) -> None:
    api.items = [tier("kept")]
    source.start()
    until(lambda: names(source) == {"kept"}, "the list")
    until(lambda: source.objects().heard_at_seconds is not None, "the lists of all kinds")
    api.ended = True  # type: ignore[attr-defined]
    api.shutdown()
    api.server_close()
    until(lambda: source.objects().problem not in ("", "not read yet"), "the problem")
    assert names(source) == {"kept"}
    assert source.objects().heard_at_seconds is not None


def test_a_watch_that_fell_silent_was_heard_when_it_last_said_something(
    api: ApiServer,
) -> None:
    """A server that stands still is noticed late: what was known before is not younger for it."""
    now = [100.0]
    api_client = client_of(api)
    source = LiveSource(
        KubernetesClient(api_client, "test"), api_client, (), lambda _: None, clock=lambda: now[0]
    )
    source.start()
    until(lambda: source.objects().heard_at_seconds == 100.0, "all kinds")
    now[0] = 120.0
    until(lambda: source.objects().heard_at_seconds == 120.0, "open watches")
    now[0] = 140.0
    assert source.objects().heard_at_seconds == 140.0
    api.shutdown()
    api.server_close()
    api.ended = True  # type: ignore[attr-defined]
    until(lambda: source.objects().problem != "", "the problem")
    source.close()
    assert source.objects().heard_at_seconds in {100.0, 120.0}  # when the watch was opened


def queues_of(source: LiveSource) -> list[str]:
    return [str(one["metadata"]["name"]) for one in source.objects().queues]


def test_a_kind_that_is_left_out_is_not_asked_for(api: ApiServer) -> None:
    api_client = client_of(api)
    kubernetes = KubernetesClient(api_client, "test")
    source = LiveSource(kubernetes, api_client, (), lambda _: None, without=(DELAY_QUEUES,))
    source.start()
    until(lambda: source.objects().problem == "", "all other kinds")
    source.close()
    assert source.objects().queues == ()
    assert not any("delayqueues" in path for path in api.asked)


def is_as_without_queues(source: LiveSource) -> bool:
    found = source.objects()
    return not found.queues and not found.problem and found.heard_at_seconds is not None


@pytest.fixture
def quick_source(api: ApiServer) -> Iterator[LiveSource]:
    """Looks for DelayQueues that are not there ten times a second."""
    api_client = client_of(api)
    kubernetes = KubernetesClient(api_client, "test")
    made = LiveSource(kubernetes, api_client, (), lambda _: None, look_seconds=0.1)
    yield made
    made.close()


@pytest.mark.parametrize("status", [404, 403])
def test_delay_queues_that_are_not_served_or_not_granted_are_no_problem_and_not_asked_for_again(
    api: ApiServer, source: LiveSource, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.console.source._AGAIN_SECONDS", 0.05)
    api.queues, api.queues_status = [tier("queue")], status
    api.tiers_status = 401  # so these are asked for again and again
    source.start()
    until(lambda: api.lists >= 5 and api.looks_for_queues > 0, "the tiers' lists")
    api.tiers_status = 200
    until(lambda: is_as_without_queues(source), "all other kinds")
    assert api.looks_for_queues == 1


@pytest.mark.parametrize("status", [404, 403])
def test_delay_queues_appear_when_they_are_served_and_go_when_they_are_not(
    api: ApiServer, quick_source: LiveSource, status: int
) -> None:
    api.queues, api.queues_status = [tier("queue")], status
    quick_source.start()
    until(lambda: is_as_without_queues(quick_source), "nothing of queues")
    api.queues_status = 200
    until(lambda: queues_of(quick_source) == ["queue"], "the queue")
    assert quick_source.objects().problem == ""
    before = quick_source.changes()
    api.queues_status = status
    until(lambda: is_as_without_queues(quick_source), "no queue")
    assert quick_source.changes() != before
    api.queues_status = 200
    until(lambda: queues_of(quick_source) == ["queue"], "the queue again")


@pytest.mark.parametrize("status", [401, 500])
def test_another_answer_about_delay_queues_is_a_problem_and_keeps_what_was_known(
    api: ApiServer, source: LiveSource, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.console.source._AGAIN_SECONDS", 0.05)
    api.queues = [tier("queue")]
    source.start()
    until(lambda: queues_of(source) == ["queue"], "the queue")
    api.queues_status = status
    looks = api.looks_for_queues
    until(lambda: api.looks_for_queues >= looks + 4, "watches and lists that fail")
    assert source.objects().problem not in ("", "not read yet")
    assert queues_of(source) == ["queue"]


def test_viewers_are_known_by_reviews_that_are_kept_for_seconds(api: ApiServer) -> None:
    now = [0.0]
    access = Access(client_of(api), monotonic=lambda: now[0])
    ann = access.viewer("good")
    assert (ann.username, ann.groups) == ("ann", ("team",))
    assert access.may_list(ann, BUSINESS_TIERS, "mine")
    assert not access.may_list(ann, BUSINESS_TIERS, "other")
    sent = api.reviews[1]["spec"]
    assert (sent["user"], sent["groups"], sent["extra"]) == ("ann", ["team"], {"a": ["b"]})
    assert sent["resourceAttributes"]["verb"] == "list"
    access.viewer("good")
    access.may_list(ann, BUSINESS_TIERS, "mine")
    assert len(api.reviews) == 3
    api.may_list.clear()
    now[0] = 10.1
    assert not access.may_list(ann, BUSINESS_TIERS, "mine")


@pytest.mark.parametrize("token", [None, "", "bad", "x" * 20_000, "\u202e"])
def test_a_token_that_is_none_of_the_cluster_is_refused(api: ApiServer, token: str | None) -> None:
    access = Access(client_of(api))
    for _ in range(2):
        with pytest.raises(Refused):
            access.viewer(token)
    assert len(api.reviews) <= 1  # a wrong one is remembered too, an absurd one is not sent


def test_trails_of_several_replicas_are_one(tmp_path: Any) -> None:
    def line(second: int) -> str:
        fields = {"event": "Audit", "kind": "hold", "t": f"2026-01-01T00:00:{second:02}Z"}
        return json.dumps(fields, separators=(",", ":")) + "\n"

    (tmp_path / "a").write_text(line(1) + line(3) + '{"event":"Audit","to')
    (tmp_path / "b").write_text("a line of a log\n" + line(2))
    trail = read_trails([tmp_path / "a", tmp_path / "b", tmp_path / "none"])
    assert [one["t"][-3:-1] for one in trail.lines] == ["03", "02", "01"]
    assert "none cannot be read" in trail.problem
    assert read_trails([]).problem == "no audit trail was named (--audit-file)"
