"""`tidegate override create` on the in-memory API server: the object, and what is refused."""

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from tests.doubles.kubernetes import InMemoryKubernetes
from tidegate.commands.override import seconds_of
from tidegate.errors import InvalidResource, Unauthorized
from tidegate.kube.api import (
    BROKER_BANDWIDTH_POLICIES,
    BUSINESS_TIERS,
    QUOTA_OVERRIDES,
)
from tidegate.observe.declared import declare
from tidegate.resources.kinds import parse_object

WHY = ("--for", "2h", "--reason", "backfill after the outage")


@pytest.fixture
def stored(world: Any, policy: Any, tier: Any) -> Any:
    world.now = 1_795_417_805.25
    world.kubernetes = InMemoryKubernetes(created_at=lambda: "2026-11-23T07:10:06Z")
    world.kubernetes.create(BROKER_BANDWIDTH_POLICIES, policy)
    world.kubernetes.create(BUSINESS_TIERS, tier)
    return world


def overrides(world: Any) -> list[Any]:
    return list(world.kubernetes.list_all(QUOTA_OVERRIDES))


def test_a_members_override_has_the_form_of_its_contract_and_an_end(
    stored: Any, policy: Any, tier: Any, golden: Callable[[str], None]
) -> None:
    answer = stored.run("override", "create", "--user", "alice", "--fetch", "40M", *WHY)
    assert (answer.code, answer.err) == (0, "")
    (made,) = overrides(stored)
    assert made["metadata"]["name"] == "alice-20261123-071005"
    assert made["metadata"]["namespace"] == "streaming"
    assert made["spec"] == {
        "policyRef": {"name": "orders"},
        "target": {"user": "alice"},
        "action": "SetRates",
        "expiresAt": "2026-11-23T09:10:05Z",
        "reason": "backfill after the outage",
        "rates": {"perPartition": {"fetch": "40M"}},
    }
    declared = declare(policy, [tier], overrides=[made])
    assert declared.broken_overrides == ()
    assert len(declared.overrides or ()) == 1
    golden(answer.out)


def test_a_dry_run_prints_the_object_and_creates_nothing(stored: Any) -> None:
    answer = stored.run(
        *("override", "create", "orders", "--level", "L3", "--produce", "5M"),
        *("--form", "perBroker", *WHY, "--name", "night", "--dry-run=client", "-o", "yaml"),
    )
    assert answer.code == 2
    assert overrides(stored) == []
    printed = yaml.safe_load(answer.out)
    parse_object(printed, strict=True)
    assert printed["metadata"]["name"] == "night"
    assert printed["spec"]["target"] == {"level": "L3"}
    assert printed["spec"]["rates"] == {"perBroker": {"produce": "5M"}}


def test_an_exemption_has_no_rates(stored: Any) -> None:
    assert stored.run("override", "create", "--user", "alice", "--exempt", *WHY).code == 0
    (made,) = overrides(stored)
    assert made["spec"]["action"] == "Exempt"
    assert "rates" not in made["spec"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--user", "alice"], "--exempt"),
        (["--user", "alice", "--fetch", "1M", "--exempt"], "--exempt"),
        (["--fetch", "1M"], "Who is it for?"),
        (["--user", "bob", "--fetch", "1M"], "has the member"),
        (["--client-id", "x", "--fetch", "1M"], "has the member"),
        (["--level", "L3", "--fetch", "1M"], "--form"),
        (["--level", "L3", "--user", "alice", "--fetch", "1M"], "either a level"),
        (["--level", "L9", "--fetch", "1M", "--form", "total"], "level"),
        (["--user", "alice", "--fetch", "fast"], "fetch"),
        (["--level", "L0", "--exempt"], "L0"),
    ],
    ids=str,
)
def test_what_the_server_or_the_operator_would_refuse_is_not_created(
    stored: Any, arguments: list[str], named: str
) -> None:
    answer = stored.run("override", "create", *arguments, *WHY)
    assert answer.code == 1
    assert named in answer.err
    assert overrides(stored) == []


@pytest.mark.parametrize(
    ("arguments", "span"),
    [
        (
            ["--starts-at", "2026-11-24T22:00:00Z", "--for", "8h"],
            {"startsAt": "2026-11-24T22:00:00Z", "expiresAt": "2026-11-25T06:00:00Z"},
        ),
        (
            ["--recurrence", "22:00", "06:00", "--for", "366d"],
            {
                "recurrence": {
                    "from": "22:00",
                    "to": "06:00",
                    "until": "2027-11-24T07:10:05Z",
                }
            },
        ),
        (
            [
                *("--recurrence", "22:00", "06:00", "--days", "Mon, Tue"),
                *("--time-zone", "Europe/Berlin", "--for", "30d"),
                *("--starts-at", "2026-12-01T00:00:00+01:00"),
            ],
            {
                "startsAt": "2026-11-30T23:00:00Z",
                "recurrence": {
                    "days": ["Mon", "Tue"],
                    "from": "22:00",
                    "to": "06:00",
                    "timeZone": "Europe/Berlin",
                    "until": "2026-12-30T23:00:00Z",
                },
            },
        ),
    ],
)
def test_it_can_begin_later_and_come_back(
    stored: Any, arguments: list[str], span: dict[str, Any], golden: Callable[[str], None]
) -> None:
    whom = ("override", "create", "--user", "alice", "--exempt", "--reason", "backfill")
    answer = stored.run(*whom, *arguments)
    assert (answer.code, answer.err) == (0, "")
    (made,) = overrides(stored)
    when = ("startsAt", "expiresAt", "recurrence")
    assert {name: made["spec"][name] for name in when if name in made["spec"]} == span
    golden(answer.out)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--days", "Mon", "--for", "2h"], "--recurrence"),
        (["--time-zone", "UTC", "--for", "2h"], "--recurrence"),
        (["--starts-at", "2h", "--for", "2h"], "in the past"),
        (["--starts-at", "tomorrow", "--for", "2h"], "tomorrow"),
        (["--starts-at", "2026-12-20T00:00:00Z", "--for", "5d"], "30 days"),
        (["--for", "31d"], "30 days"),
        (["--recurrence", "22:00", "06:00", "--for", "367d"], "366 days"),
        (["--recurrence", "22", "06:00", "--for", "3d"], "spec.recurrence.from"),
        (["--recurrence", "22:00", "06:00", "--days", "Mo", "--for", "3d"], "days"),
        (["--recurrence", "22:00", "06:00", "--time-zone", "CEST2", "--for", "3d"], "timeZone"),
        (["--starts-at", "2026-11-20T00:00:00Z", "--for", "2h"], "in the past"),
    ],
    ids=str,
)
def test_times_that_cannot_be_are_refused(stored: Any, arguments: list[str], named: str) -> None:
    whom = ("override", "create", "--user", "alice", "--exempt", "--reason", "backfill")
    answer = stored.run(*whom, *arguments)
    assert answer.code == 1
    assert named in answer.err
    assert overrides(stored) == []


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("45m", 2700), ("2h", 7200), ("30d", 2_592_000)]
)
def test_how_long_is_written_as_people_write_it(text: str, seconds: int) -> None:
    assert seconds_of(text, 30) == seconds


@pytest.mark.parametrize("text", ["", "2", "0h", "1w", "-1h", "31d", "1.5h", "2h30m"])
def test_another_length_of_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidResource):
        seconds_of(text, 30)


def test_without_the_right_the_object_can_be_printed_for_somebody_else(
    stored: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise Unauthorized("Kubernetes refused it (403): no.")

    monkeypatch.setattr(stored.kubernetes, "create", refuse)
    answer = stored.run("override", "create", "--user", "alice", "--fetch", "40M", *WHY)
    assert answer.code == 1
    assert "--dry-run=client" in answer.err
