"""Objects are reported before the first pass ends only when that takes long, and the report of the pass comes last."""

import threading
from typing import Any

import pytest

from lab.process import wait_until
from tests.unit.control.stage import Stage
from tidegate.control import controller as controller_module
from tidegate.control.controller import report_pending_if_slow


def test_a_pass_that_ends_in_time_has_no_report_before() -> None:
    reported: list[str] = []
    with report_pending_if_slow(lambda: reported.append("seen"), 60.0):
        pass
    assert reported == []


def test_a_report_that_was_begun_is_finished_before_the_next() -> None:
    reported: list[str] = []
    begun, go_on = threading.Event(), threading.Event()

    def report() -> None:
        begun.set()
        go_on.wait(10.0)
        reported.append("seen")

    with report_pending_if_slow(report, 0.0):
        assert begun.wait(10.0)
        threading.Timer(0.05, go_on.set).start()
    reported.append("done")
    assert reported == ["seen", "done"]


def test_once_it_is_not_needed_there_is_no_report_however_long_the_rest_takes() -> None:
    reported: list[str] = []
    with report_pending_if_slow(lambda: reported.append("seen"), 60.0) as unneeded:
        unneeded()
        assert not waiting_to_speak()
    assert reported == []


def waiting_to_speak() -> bool:
    return any(isinstance(thread, threading.Timer) for thread in threading.enumerate())


def test_a_pass_that_only_has_much_to_write_is_not_reported_before_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    policy, _ = stage.policy(), stage.tier()
    facts, write = stage.store.facts, stage.store.write
    waiting: list[bool] = []

    def asked() -> Any:
        waiting.append(waiting_to_speak())
        return facts()

    def writing(*args: Any) -> Any:
        waiting.append(waiting_to_speak())
        return write(*args)

    monkeypatch.setattr(stage.store, "facts", asked)
    monkeypatch.setattr(stage.store, "write", writing)
    stage.run()
    assert waiting == [True, False]
    assert stage.condition(policy) == ("True", "InSync")


def test_while_a_cluster_keeps_the_first_pass_waiting_its_objects_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_module, "PENDING_AFTER_SECONDS", 0.0)
    stage = Stage()
    policy, tier = stage.policy(), stage.tier()
    seen: list[tuple[str, str]] = []

    def slow() -> object:
        wait_until(lambda: "status" in stage.kubernetes.get(tier), "a first word", timeout_seconds=10, poll_seconds=0.005)
        seen.extend([stage.condition(policy), stage.condition(tier)])
        return facts()

    facts = stage.store.facts
    monkeypatch.setattr(stage.store, "facts", slow)
    stage.run()
    assert seen == [("Unknown", "Starting"), ("Unknown", "Starting")]
    assert (stage.condition(policy), stage.condition(tier)) == (("True", "InSync"), ("True", "Contract"))
