"""`tidegate audit`: what a trail says to people, whatever happened to the file that it is in."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.goldens.golden import line_with, numbers

POLICY = "streaming/orders"
ROUND = "egress-1763719215-7"


def at(second: int, kind: str, **fields: Any) -> dict[str, Any]:
    t = f"2026-11-21T11:{second // 60:02d}:{second % 60:02d}.000Z"
    return {"event": "Audit", "kind": kind, "t": t, "policy": POLICY, "cluster": "c1", **fields}


def write(second: int, before: int | None, after: int | None, **fields: Any) -> dict[str, Any]:
    usual = {
        "entity": "user=etl", "key": "consumer_byte_rate", "from": before, "to": after, "reason": "Throttled", "level": "L3",
        "contract": 60_000_000, "predictedMute_s": 12, "outcome": "applied", "round": ROUND,
    }  # fmt: skip
    return at(second, "write", **{**usual, **fields})


CUT = at(
    0,
    "round",
    id=ROUND,
    dir="egress",
    phase="Cutting",
    blind=[2],
    brokers=[
        {"id": 1, "nic": 65e6, "threshold": 50e6, "need": 16.5e6},
        {"id": 3, "nic": 5e6, "threshold": 50e6, "need": 0},
    ],
    actions=[
        {
            "entity": "user=etl",
            "tier": "L3",
            "kind": "cut",
            "from": 60_000_000,
            "to": 25_000_000,
            "limitedBy": "maxMute",
            "predictedMute_s": 12,
        }
    ],
    notDone=[{"entity": "user=pay", "why": "L0 is never throttled"}],
    conditions=[{"reason": "StaleData", "message": "broker 2 egress: no reading"}],
)
EFFECT = at(
    30,
    "effect",
    round=ROUND,
    dir="egress",
    seconds=30,
    brokers=[{"id": 1, "threshold": 50e6, "nicBefore": 65e6, "nicAfter": None}],
    entities=[
        {
            "entity": "user=etl",
            "tier": "L3",
            "kind": "cut",
            "rateBefore": 40e6,
            "rateAfter": 25e6,
            "predictedMute_s": 12,
            "observedMute_s": 11.3,
        }
    ],
)
STORY = [
    CUT,
    write(0, 60_000_000, 25_000_000),
    EFFECT,
    at(
        40,
        "hold",
        state="begins",
        reason="Paused",
        message="the annotation is set",
        since="2026-11-21T11:00:40.000Z",
    ),
    at(50, "hold", state="ends", reason="Paused", seconds=10.0),
    write(90, 25_000_000, 50_000_000, reason="Relaxing", predictedMute_s=0),
    write(120, 50_000_000, 60_000_000, reason="Released", predictedMute_s=0),
    write(
        130,
        1_000_000,
        2_000_000,
        entity="user=pay, client-id=app",
        reason="LeadersMoved",
        level="L0",
        contract=2_000_000,
        round=None,
    ),
    at(
        140,
        "override",
        state="begins",
        override="streaming/backfill",
        until="2026-11-30T06:00:00.000Z",
        why="backfill",
        entities=["user=etl"],
    ),
]


@pytest.fixture
def trail(tmp_path: Path) -> Path:
    path = tmp_path / "audit.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in STORY))
    return path


def shown(world: Any, *arguments: str, standard_input: str = "") -> str:
    answer = world.run("audit", *arguments, standard_input=standard_input)
    assert answer.code == 0, answer.err
    return str(answer.out)


def kinds(world: Any, path: Path, *arguments: str) -> list[str]:
    return [
        line["kind"]
        for line in json.loads(shown(world, "--audit-file", str(path), "-o", "json", *arguments))[
            "lines"
        ]
    ]


def test_every_kind_of_line_is_a_sentence(
    world: Any, trail: Path, golden: Callable[[str], None]
) -> None:
    golden(shown(world, "--audit-file", str(trail)))


@pytest.mark.parametrize(
    ("kind", "named", "amounts"),
    [
        (
            "round",
            ("egress Cutting", "user=etl (L3)", "StaleData: broker 2 egress: no reading"),
            {1, 2, 65.0, 50.0, 60.0, 25.0, 12},
        ),
        ("write", ("user=etl", "Throttled"), {60.0, 25.0, 12}),
        ("effect", ("egress", "user=etl", "unknown"), {30, 1, 65.0, 50.0, 40.0, 25.0, 11.3, 12.0}),
        ("hold", ("Paused", "the annotation is set"), set()),
        (
            "override",
            ("streaming/backfill", "user=etl", "2026-11-30T06:00:00.000Z", "backfill"),
            set(),
        ),
    ],
)
def test_a_line_has_its_names_and_numbers(
    world: Any, trail: Path, kind: str, named: tuple[str, ...], amounts: set[float]
) -> None:
    first = shown(world, "--audit-file", str(trail), "--kind", kind).splitlines()[
        1
    ]  # below the heading
    assert [name for name in named if name not in first] == []
    assert numbers(first) >= amounts


def test_a_hold_that_ends_has_its_length(world: Any, trail: Path) -> None:
    assert numbers(shown(world, "--audit-file", str(trail), "--kind", "hold").splitlines()[2]) >= {
        10
    }


def test_an_effect_that_another_round_shares_says_so(
    world: Any, golden: Callable[[str], None]
) -> None:
    shared = {**EFFECT, "entities": [{**EFFECT["entities"][0], "changedSince": True}]}
    text = shown(world, standard_input=json.dumps(shared) + "\n")
    assert numbers(text) >= {11.3, 12.0}
    assert text != shown(world, standard_input=json.dumps(EFFECT) + "\n")
    golden(text)


def test_a_line_has_its_time_and_kind(world: Any, trail: Path) -> None:
    assert "2026-11-21 11:00:30  effect" in shown(world, "--audit-file", str(trail))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), ["round", "write", "effect", "hold", "hold", "write", "write", "write", "override"]),
        (("--kind", "hold"), ["hold", "hold"]),
        (("--kind", "hold", "--kind", "round"), ["round", "hold", "hold"]),
        (("--entity", "etl"), ["round", "write", "effect", "write", "write", "override"]),
        (("--entity", "user=etl"), ["round", "write", "effect", "write", "write", "override"]),
        (("--entity", "app"), ["write"]),
        (("--entity", "missing"), []),
        (("--level", "L0"), ["write"]),
        (("--since", "2026-11-21T11:01:30Z"), ["write", "write", "write", "override"]),
        (("--until", "2026-11-21T11:00:00"), ["round", "write"]),
        (
            ("--since", "2026-11-21T12:00:40+01:00", "--until", "2026-11-21T11:00:50Z"),
            ["hold", "hold"],
        ),
        (
            ("--policy", "orders"),
            ["round", "write", "effect", "hold", "hold", "write", "write", "write", "override"],
        ),
        (("--policy", "streaming/payments"), []),
    ],
)
def test_lines_can_be_chosen(
    world: Any, trail: Path, arguments: tuple[str, ...], expected: list[str]
) -> None:
    assert kinds(world, trail, *arguments) == expected


def test_since_may_be_so_long_ago(world: Any, trail: Path) -> None:
    world.now = 1795258840.0  # 2026-11-21T11:00:40Z
    assert kinds(world, trail, "--since", "10s", "--kind", "effect", "--kind", "round") == [
        "effect"
    ]


def test_a_summary_adds_up_by_level(world: Any, trail: Path) -> None:
    summary = json.loads(shown(world, "--audit-file", str(trail), "--summary", "-o", "json"))[
        "summary"
    ]
    assert summary[1] == {
        "policy": POLICY, "level": "L3", "cuts": 1, "raises": 2, "secondsBelowContract": 120, "worstPredictedMuteSeconds": 12,
        "worstObservedMuteSeconds": 11.3, "brokers": ["1 egress"],
    }  # fmt: skip
    assert (summary[0]["level"], summary[0]["cuts"], summary[0]["raises"]) == ("L0", 0, 0)


def test_time_below_contract_counts_once_for_a_level_and_goes_on_to_the_last_line(
    world: Any,
) -> None:
    lines = [
        write(0, 60_000_000, 25_000_000),
        write(10, 60_000_000, 25_000_000, entity="user=bi"),
        write(20, 25_000_000, 60_000_000),
        STORY[-1],
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (summary,) = json.loads(shown(world, "--summary", "-o", "json", standard_input=text))["summary"]
    assert summary["secondsBelowContract"] == 140


def test_the_summary_is_a_table_for_people(
    world: Any, trail: Path, golden: Callable[[str], None]
) -> None:
    text = shown(world, "--audit-file", str(trail), "--summary")
    assert line_with(text, "L3").split() == [
        POLICY,
        "L3",
        "1",
        "2",
        "120",
        "s",
        "12.0",
        "s",
        "11.3",
        "s",
        "1",
        "egress",
    ]
    golden(text)


def test_a_last_line_without_an_end_is_said_and_left_out(
    world: Any, trail: Path, golden: Callable[[str], None]
) -> None:
    with trail.open("a") as file:
        file.write('{"event":"Audit","kind":"wri')
    answer = world.run("audit", "--audit-file", str(trail))
    assert answer.code == 0
    warning, *lines = answer.out.splitlines()
    assert warning.startswith("warning: ")
    assert "streaming/backfill" in lines[-1]
    assert "wri" not in lines[-1]
    golden(warning)


def test_a_line_torn_in_the_middle_is_said_with_its_number(
    world: Any, trail: Path, golden: Callable[[str], None]
) -> None:
    trail.write_text('{"event":"Audit","kind":"wri\n' + trail.read_text())
    text = line_with(shown(world, "--audit-file", str(trail)), "warning: ")
    assert numbers(text) == {1}
    golden(text)


def test_the_log_around_the_trail_is_passed_over(world: Any) -> None:
    log = '{"event": "Operator started", "level": "info"}\nnot JSON\n[1]\n' + json.dumps(CUT) + "\n"
    document = json.loads(shown(world, "-o", "json", standard_input=log))
    assert ([line["kind"] for line in document["lines"]], document["otherLines"]) == (["round"], 3)


def test_a_cut_that_waits_shows_no_value_that_is_not_written(
    world: Any, golden: Callable[[str], None]
) -> None:
    waiting = {**CUT, "actions": [{**CUT["actions"][0], "to": 60_000_000, "waits_s": 4}]}
    text = shown(world, standard_input=json.dumps(waiting) + "\n")
    assert 4 in numbers(text)
    assert 60.0 not in numbers(text)
    golden(text)


def test_an_empty_trail_is_said(world: Any, golden: Callable[[str], None]) -> None:
    text = shown(world, standard_input="hello\n")
    assert numbers(text) == {1}
    golden(text)


def test_a_line_of_a_later_version_is_shown_as_it_stands(world: Any) -> None:
    assert "kind=other" in shown(world, standard_input=json.dumps(at(0, "other")) + "\n")


@pytest.mark.parametrize(
    "arguments",
    [("--audit-file", "/nowhere/audit.jsonl"), ("--since", "yesterday"), ("--kind", "other")],
    ids=lambda arguments: arguments[1],
)
def test_what_cannot_be_answered_says_why(
    world: Any, arguments: tuple[str, ...], golden: Callable[[str], None]
) -> None:
    answer = world.run("audit", *arguments)
    assert (answer.code, arguments[1] in answer.err) == (1, True)
    golden(answer.err)


def test_the_trails_of_all_pods_are_one_in_the_order_of_time(world: Any, tmp_path: Path) -> None:
    folder = tmp_path / "trails"
    folder.mkdir()
    first, second = (json.dumps(one) for one in (write(1, 5, 4), write(30, 4, 5)))
    between = json.dumps(write(20, 9, 8, policy="streaming/other"))
    (folder / "tidegate-a.jsonl").write_text(f"{first}\n{second}\n")
    (folder / "tidegate-b.jsonl").write_text(f'{between}\n{{"event":"Audit", torn\n')
    (folder / "notes.txt").write_text("not a trail\n")
    for named in (
        ["--audit-file", str(folder)],
        [
            *("--audit-file", str(folder / "tidegate-b.jsonl")),
            *("--audit-file", str(folder / "tidegate-a.jsonl")),
        ],
    ):
        found = json.loads(shown(world, *named, "-o", "json"))
        assert [line["t"][17:19] for line in found["lines"]] == ["01", "20", "30"]
        assert found["otherLines"] + len(found["unreadableLines"]) == 1
    empty = tmp_path / "empty"
    empty.mkdir()
    answer = world.run("audit", "--audit-file", str(empty))
    assert answer.code != 0
    assert f"In folder {empty} there is no file *.jsonl" in answer.err


def test_lines_of_one_pass_can_be_chosen(world: Any, tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    lines = [
        write(1, 5, 4, **{"pass": "19ab-1"}),
        write(2, 4, 5, **{"pass": "19ab-2"}),
        write(3, 5, 6),
    ]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    found = json.loads(shown(world, "--audit-file", str(path), "-o", "json", "--pass", "19ab-2"))
    assert [line["t"][17:19] for line in found["lines"]] == ["02"]
