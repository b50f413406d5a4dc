"""While nothing changes next to nothing is worked out, and what is taken over is as it would be."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import pytest

from bench.large_console import MB, large_measured, large_objects
from tests.doubles.simulated_console import moments, stopped_at
from tests.unit.console.states import STATES
from tests.unit.simulation.loads import evening
from tidegate.console import brokers_part, members_part
from tidegate.console.history import History
from tidegate.console.now_page import now_page
from tidegate.console.parts import Kept, Page, changes_between
from tidegate.view import load, policy
from tidegate.view.policy import Measured, Objects, PolicyNow, policy_now
from tidegate_logic.model import Direction

KEY = "streaming/orders"
NOW = 1_800_000_000.0


def seen(
    objects: Objects, measured: Measured, at: float, before: PolicyNow | None = None
) -> PolicyNow:
    found = policy_now(objects, KEY, measured, at, before=before)
    assert found is not None
    return found


def calm(brokers: int, members: int, at: float, *, seed: int = 1) -> Measured:
    """Every NIC carries what its clients send, so none is unknown, which would have an age."""
    readings = large_measured(brokers, members, at, seed=seed).readings
    assert readings is not None
    clients = {
        key: replace(one, bytes_per_second=0.1 * MB + seed) for key, one in readings.clients.items()
    }
    return Measured(replace(readings, clients=clients))


@dataclass
class Calls:
    """How often each function of a module was called."""

    of: dict[str, int] = field(default_factory=dict)

    def count(self, patch: pytest.MonkeyPatch, module: Any, name: str) -> None:
        whole: Callable[..., Any] = getattr(module, name)
        self.of[name] = 0

        def counted(*args: Any, **named: Any) -> Any:
            self.of[name] += 1
            return whole(*args, **named)

        patch.setattr(module, name, counted)


def test_while_only_time_goes_on_no_reading_member_or_tile_is_worked_out_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = Calls()
    for name in ("declare", "MemberNow"):
        calls.count(monkeypatch, policy, name)
    for name in ("flows_of", "watch", "NicNow"):
        calls.count(monkeypatch, load, name)
    calls.count(monkeypatch, brokers_part, "figure_of")
    calls.count(monkeypatch, members_part, "_delayed")
    objects, measured = large_objects(50, 1000, NOW), calm(50, 1000, NOW)
    now, kept, history = seen(objects, measured, NOW), Kept(), History()
    history.note(now)
    page: Page = now_page(now, history, kept)
    assert calls.of == {
        "declare": 1,
        "flows_of": 1,
        "watch": 1,
        "MemberNow": 2000,
        "NicNow": 100,
        "figure_of": 1,
        "_delayed": 10,
    }
    assert kept.made == 61, "a square each, a chart, and a row each of the first ten"

    done = dict(calls.of)
    for seconds in range(2, 14, 2):  # the API server is heard all the time
        heard = replace(objects, heard_at_seconds=NOW + seconds)
        now = seen(heard, measured, NOW + seconds, now)
        assert now.input_of("Kubernetes").is_known(NOW + seconds)
        later = now_page(now, history, kept)
        changes = changes_between(page, later) or {}
        sent = {name for name, html in changes.get("", ()) if html is not None}
        assert sent <= {"strip", "banner", "lanes"}, "ages, and nothing else"
        assert set(changes) <= {"", "lanes"}
        page = later
    assert (calls.of, kept.made) == (done, 61)

    # a pass: everybody moves another rate, so each tile and each row is another one; but the
    # objects are read no more
    measured = calm(50, 1000, NOW + 14, seed=2)
    now = seen(replace(objects, heard_at_seconds=NOW + 14), measured, NOW + 14, now)
    history.note(now)
    now_page(now, history, kept)
    assert calls.of == {**{name: 2 * count for name, count in done.items()}, "declare": 1}
    # the same loads once more, as of brokers that were not scraped since
    again = Measured(replace(measured.readings, read_at_seconds=NOW + 19))  # type: ignore[type-var]
    now = seen(replace(objects, heard_at_seconds=NOW + 19), again, NOW + 19, now)
    made = kept.made
    now_page(now, history, kept)
    assert kept.made == made


def test_an_event_changes_the_events_alone() -> None:
    console, source = stopped_at(640)
    first = console.policy(source.objects(), KEY)
    assert first is not None
    more = copy.deepcopy(source.objects_now.events[-1])
    more["metadata"]["uid"] = "another"  # type: ignore[index]
    source.objects_now = replace(source.objects_now, events=(*source.objects_now.events, more))
    second = console.policy(source.objects(), KEY)
    assert second is not None
    assert second.members is first.members
    assert second.nics is first.nics
    assert len(second.events) == len(first.events) + 1


def test_what_is_taken_over_is_as_it_would_be_worked_out_anew() -> None:
    """Over an evening of throttling, with time, readings and objects that go on one by one."""
    passes = [one for one in moments(evening()) if one.at_seconds >= 290][:120:3]
    before = None
    taken_over = 0
    for one, next_ in pairwise(passes):
        now = one.observation.now_seconds
        old, new = Measured(one.observation.readings), Measured(next_.observation.readings)
        steps = (
            (one.objects, old, now),
            (replace(one.objects, heard_at_seconds=now + 0.5), old, now + 0.5),
            (one.objects, new, now + 1.0),
            (replace(one.objects, problem="it does not answer"), new, now + 1.5),
            (next_.objects, new, now + 2.0),
        )
        for objects, measured, at in steps:
            found = seen(objects, measured, at, before)
            assert found == seen(objects, measured, at)
            taken_over += before is not None and found.members is before.members
            before = found
    assert taken_over >= 2 * (len(passes) - 1)


@pytest.mark.parametrize("state", STATES)
def test_so_it_is_in_each_state(state: str) -> None:
    seconds, bend, _ = STATES[state]
    console, source = stopped_at(seconds)
    before = policy_now(source.objects(), KEY, source.measured(KEY), source.now)
    bend(source)
    for later in (0.0, 2.0, 30.0, 44.0, 46.0, 100.0):
        objects, measured = source.objects(), source.measured(KEY)
        at = source.now + later
        found = policy_now(objects, KEY, measured, at, before=before)
        assert found == policy_now(objects, KEY, measured, at)
        if found is not None:
            kept = Kept()
            now_page(found, console.history, kept)
            assert now_page(found, console.history, kept) == now_page(found, console.history)
        before = found


def test_a_reading_that_grows_too_old_is_judged_when_it_does() -> None:
    objects, measured = large_objects(6, 20, NOW), large_measured(6, 20, NOW)
    stale = seen(objects, measured, NOW).declared.policy.stale_after_seconds  # type: ignore[union-attr]
    now = seen(objects, measured, NOW)
    for after, are_known in ((stale - 1, True), (stale, True), (stale + 0.1, False)):
        now = seen(objects, measured, NOW + after, now)
        assert {one.is_known for one in now.nics} == {are_known}
        assert all((one.sends is not None) == are_known for one in now.members)
    words = {nic.why for nic in now.nics}
    now = seen(objects, measured, NOW + stale + 10, now)
    assert words.isdisjoint(nic.why for nic in now.nics), "its age goes on"


def test_a_reading_from_ahead_of_our_clock_counts_when_its_time_comes() -> None:
    objects, measured = large_objects(6, 20, NOW), large_measured(6, 20, NOW + 60)
    now = seen(objects, measured, NOW)
    assert {one.is_known for one in now.nics} == {False}
    now = seen(objects, measured, NOW + 20, now)
    assert {one.is_known for one in now.nics} == {True}


def test_a_reading_is_one_point_of_the_line_however_often_it_is_looked_at() -> None:
    objects, measured = large_objects(6, 20, NOW), large_measured(6, 20, NOW)
    history = History()
    place = (1, Direction.EGRESS)
    for seconds in (0.0, 5.0, 10.0):
        history.note(seen(objects, measured, NOW + seconds))
    assert [at for at, _ in history.nic(KEY, place)] == [NOW]
    measured = large_measured(6, 20, NOW + 15, seed=2)
    for seconds in (15.0, 20.0, 70.0, 75.0):  # then it is too old: a gap that grows
        history.note(seen(objects, measured, NOW + seconds))
    points = history.nic(KEY, place)
    assert [(at - NOW, share is None) for at, share in points] == [
        (0.0, False),
        (15.0, False),
        (70.0, True),
        (75.0, True),
    ]
