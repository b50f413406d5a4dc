"""Rights of viewers without an API server: what is kept, whose it is, and what happens meanwhile."""

from __future__ import annotations

import json
import queue
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import pytest

from tidegate.console.access import Access, Refused, TooManyUnknown, Viewer
from tidegate.console.viewers import Place, Viewers
from tidegate.errors import Unauthorized, Unreachable
from tidegate.kube.api import BUSINESS_TIERS, ResourceKind
from tidegate_logic.reasons import Reason

MINE, OTHER = (BUSINESS_TIERS, "mine"), (BUSINESS_TIERS, "other")


class Later(Executor):
    """Runs what was submitted when a test says so: nothing else may have waited for it."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self.submitted = 0

    def submit(self, call: Any, /, *arguments: Any, **options: Any) -> Future[Any]:
        self.submitted += 1
        self._waiting.put(lambda: call(*arguments, **options))
        return Future()

    def run(self) -> None:
        while not self._waiting.empty():
            self._waiting.get()()


class Reviews:
    """An API server's answers; `fails` is raised instead."""

    def __init__(self) -> None:
        self.allowed: set[Place] = {MINE}
        self.fails: Exception | None = None
        self.asked = 0

    def viewer(self, token: str | None) -> Viewer:
        self.asked += 1
        if self.fails is not None:
            raise self.fails
        if token != "good":
            raise Refused("no")
        return Viewer("ann")

    def may_list(self, viewer: Viewer, kind: ResourceKind, namespace: str) -> bool:
        return (kind, namespace) in self.allowed


class Look:
    """One set of viewers with a clock, places and an executor that a test turns."""

    def __init__(self) -> None:
        self.now = 0.0
        self.reviews, self.asks = Reviews(), Later()
        self.places: frozenset[Place] = frozenset({MINE, OTHER})
        self.viewers = Viewers(self.reviews, lambda: self.places, monotonic=lambda: self.now)

    def sees(self, token: str = "good") -> bool | None:
        """Whether the page shows tiers of `mine`; None = nothing is known."""
        rights = self.viewers.known(token, self.asks)
        return None if rights is None else rights.may_list(*MINE)


@pytest.fixture
def look() -> Look:
    made = Look()
    made.viewers.rights("good")
    return made


def test_a_page_never_waits_and_a_right_that_is_taken_away_counts_within_a_minute(
    look: Look,
) -> None:
    assert look.sees()
    assert look.asks.submitted == 0
    look.reviews.allowed.clear()
    look.now = 51.0
    asked = look.reviews.asked
    assert look.sees()  # asked for now, in a thread
    assert look.sees()
    assert (look.reviews.asked, look.asks.submitted) == (asked, 1)
    look.asks.run()
    assert look.sees() is False


def test_rights_are_used_for_ten_minutes_while_the_api_server_is_away_and_said_to_be_old(
    look: Look,
) -> None:
    look.reviews.fails = Unreachable(Reason.KUBERNETES_UNREACHABLE, "Kubernetes did not answer")
    for at in (60.0, 300.0, 599.0):
        look.now = at
        assert look.sees()
        look.asks.run()
        rights = look.viewers.known("good", look.asks)
        assert rights is not None
        assert rights.problem == "Kubernetes did not answer"
        assert look.viewers.age_seconds(rights) == at
    assert look.viewers.rights("good").may_list(*MINE)  # a page that is opened meanwhile
    look.now = 601.0
    assert look.sees() is None
    look.asks.run()
    with pytest.raises(Unreachable):
        look.viewers.rights("good")
    look.reviews.fails, look.now = None, 700.0
    assert look.viewers.rights("good").problem == ""


def test_the_server_that_is_away_is_tried_every_five_seconds_and_not_with_each_look(
    look: Look,
) -> None:
    look.reviews.fails = Unreachable(Reason.KUBERNETES_UNREACHABLE, "Kubernetes did not answer")
    look.now = 60.0
    asked = look.reviews.asked
    for step in range(100):  # ten seconds of a page that looks ten times a second
        look.now = 60.0 + step / 10
        look.viewers.rights("good")
        look.sees()
        look.asks.run()
    assert look.reviews.asked - asked <= 3


def test_while_the_server_is_away_one_page_that_is_opened_waits_for_it_and_no_other(
    look: Look,
) -> None:
    look.reviews.fails = Unreachable(Reason.KUBERNETES_UNREACHABLE, "Kubernetes did not answer")
    look.now = 60.0
    assert look.viewers.settled("good") is None
    look.viewers.rights("good")
    for _ in range(600):  # each page has it tried again, in a thread
        look.now += 0.5
        assert look.viewers.settled("good") is not None
        look.sees()
        look.asks.run()
    look.reviews.fails = None
    look.reviews.allowed.clear()
    look.now += 5.0
    look.sees()
    look.asks.run()
    assert look.sees() is False


def test_a_token_that_is_never_reviewed_does_not_put_off_others(look: Look) -> None:
    for step in range(60):
        look.now = float(step)
        look.reviews.fails = Unreachable(Reason.KUBERNETES_UNREACHABLE, "the review took too long")
        with pytest.raises(Unreachable):
            look.viewers.rights("slow")
        look.reviews.fails = None
        look.reviews.allowed.clear()
        look.sees()
        look.asks.run()
    assert look.sees() is False


def test_a_token_that_ended_closes_its_page_and_only_a_login_opens_it(look: Look) -> None:
    look.reviews.fails = Refused("This token is not valid any more")
    look.now = 60.0
    look.sees()
    look.asks.run()
    with pytest.raises(Refused, match="not valid any more"):
        look.sees()
    with pytest.raises(Refused):
        look.viewers.rights("good")
    look.reviews.fails = None
    look.viewers.rights("good")
    assert look.sees()


def test_a_console_that_may_not_ask_any_more_shows_nothing(look: Look) -> None:
    look.reviews.fails = Unauthorized("may not create tokenreviews")
    look.now = 60.0
    look.sees()
    look.asks.run()
    assert look.sees() is None


def test_a_namespace_that_appears_is_asked_about_before_it_is_shown(look: Look) -> None:
    new = (BUSINESS_TIERS, "new")
    look.reviews.allowed.add(new)
    look.places |= {new}
    rights = look.viewers.known("good", look.asks)
    assert rights is not None
    assert not rights.may_list(*new)
    look.asks.run()
    rights = look.viewers.known("good", look.asks)
    assert rights is not None
    assert rights.may_list(*new)


# --- what Access keeps, and of whom


class Answers:
    """Instead of the client's calls: tokens `full` and `small` are one person's."""

    def __init__(self) -> None:
        self.asked = {"tokenreviews": 0, "subjectaccessreviews": 0}

    def create_cluster_custom_object(
        self, _: str, __: str, plural: str, body: dict[str, Any], **___: Any
    ) -> Any:
        self.asked[plural] += 1
        if plural == "tokenreviews":
            status = self._review(body["spec"]["token"])
        else:
            scopes = body["spec"]["extra"].get("scopes", ["user:full"])
            allowed = "admins" in body["spec"]["groups"] and "user:full" in scopes
            status = {"allowed": allowed}

        class Response:
            data = json.dumps({"status": status}).encode()

            def release_conn(self) -> None:
                pass

        return Response()

    @staticmethod
    def _review(token: str) -> dict[str, Any]:
        users: dict[str, dict[str, Any]] = {
            "full": {"groups": ["admins", "all"]},
            "small": {"groups": ["all"]},
            "scoped": {"groups": ["all", "admins"], "extra": {"scopes": ["user:info"]}},
        }
        if token not in users:
            return {"authenticated": False}
        return {"authenticated": True, "user": {"username": "ann", "uid": "1", **users[token]}}


@pytest.fixture
def clock() -> list[float]:
    return [0.0]


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
def access(answers: Answers, clock: list[float]) -> Access:
    made = Access(None, monotonic=lambda: clock[0])
    made._objects = answers
    return made


@pytest.mark.parametrize("less", ["small", "scoped"])
def test_tokens_of_one_person_with_other_groups_or_scopes_have_rights_of_their_own(
    access: Access, less: str
) -> None:
    full, other = access.viewer("full"), access.viewer(less)
    assert access.may_list(full, BUSINESS_TIERS, "a")
    assert not access.may_list(other, BUSINESS_TIERS, "a")
    assert not access.may_list(other, BUSINESS_TIERS, "b")
    assert access.may_list(full, BUSINESS_TIERS, "b")


def test_the_order_of_groups_and_scopes_makes_no_other_viewer() -> None:
    one = Viewer("ann", "1", ("a", "b"), {"x": ["1", "2"], "y": ["3"]})
    same = Viewer("ann", "1", ("b", "a"), {"y": ["3"], "x": ["2", "1"]})
    assert one.digest == same.digest
    others = (
        Viewer("ann", "2", ("a", "b"), one.extra),
        Viewer("ann", "1", ("a",), one.extra),
        Viewer("ann", "1", ("a,b",), one.extra),
        Viewer("ann", "1", ("a", "b"), {"x": ["1", "2", "3"]}),
        Viewer("ann\0001", "", ("a", "b"), one.extra),
    )
    assert len({one.digest, *(other.digest for other in others)}) == 6


def test_unknown_tokens_are_reviewed_at_a_rate_and_displace_no_viewer(
    access: Access, answers: Answers, clock: list[float]
) -> None:
    access.viewer("full")
    before = answers.asked["tokenreviews"]
    refused = 0
    for number in range(12_000):
        clock[0] = number / 1200  # within ten seconds
        with pytest.raises(Refused) as told:
            access.viewer(f"nonsense-{number}")
        refused += isinstance(told.value, TooManyUnknown)
    assert answers.asked["tokenreviews"] - before <= 100  # 50, and 5 a second
    assert refused >= 11_900
    access.viewer("full")
    assert answers.asked["tokenreviews"] - before <= 100  # still kept
    clock[0] = 100.0
    access.viewer("full")  # a known one has no part in the rate of unknown ones
    access.viewer("small")


def test_a_refused_token_is_asked_about_once_a_minute(
    access: Access, answers: Answers, clock: list[float]
) -> None:
    for at in (0.0, 30.0, 59.0):
        clock[0] = at
        with pytest.raises(Refused):
            access.viewer("nonsense")
    assert answers.asked["tokenreviews"] == 1
    clock[0] = 61.0
    with pytest.raises(Refused):
        access.viewer("nonsense")
    assert answers.asked["tokenreviews"] == 2


# --- both together


class Persons(Answers):
    """Everybody may list what is in `allowed`, whatever their groups."""

    def __init__(self) -> None:
        super().__init__()
        self.allowed = {"mine"}
        self.knows = True

    def create_cluster_custom_object(self, *call: Any, body: dict[str, Any], **options: Any) -> Any:
        response = super().create_cluster_custom_object(*call, body=body, **options)
        if "resourceAttributes" in body["spec"]:
            namespace = body["spec"]["resourceAttributes"]["namespace"]
            response.data = json.dumps({"status": {"allowed": namespace in self.allowed}}).encode()
        elif not self.knows:
            response.data = b'{"status": {"authenticated": false}}'
        return response


@pytest.mark.parametrize("opened_at", [0.0, 5.0, 11.0, 30.0, 59.0])
@pytest.mark.parametrize("ends", ["right", "token"])
def test_what_was_taken_away_is_on_no_page_after_a_minute(opened_at: float, ends: str) -> None:
    """With what both keep: the same person looked before, so that some answers are older."""
    now = [0.0]
    persons, asks = Persons(), Later()
    access = Access(None, monotonic=lambda: now[0])
    access._objects = persons
    viewers = Viewers(access, lambda: frozenset({MINE}), monotonic=lambda: now[0])
    access.may_list(access.viewer("full"), *MINE)
    now[0] = opened_at
    assert viewers.rights("full").may_list(*MINE)
    persons.allowed.clear()
    persons.knows = ends == "right"

    def sees() -> bool:
        try:
            rights = viewers.known("full", asks)
        except Refused:
            return False
        asks.run()
        return rights is not None and rights.may_list(*MINE)

    seen_at = []
    while now[0] < opened_at + 200:
        if sees():
            seen_at.append(now[0] - opened_at)
        now[0] += 1.0
    assert max(seen_at, default=0.0) <= 60.0
