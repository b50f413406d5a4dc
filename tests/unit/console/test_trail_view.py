"""Audit lines as one viewer may read them: nothing of a tier in whose namespace they may list none."""

from __future__ import annotations

import json
from typing import Any

from tidegate.commands.audit import line_words
from tidegate.console.trail_view import Sight, readable

HIDDEN, OWN = "user=hidden-user", "user=own-user"
SIGHT = Sight(frozenset({OWN}), lambda namespace: namespace == "own", lambda place: place == "own")


def line(kind: str, **fields: Any) -> dict[str, Any]:
    return {"event": "Audit", "kind": kind, "t": "2026-01-01T00:00:00Z", **fields}


def write(entity: str, tier: str | None) -> dict[str, Any]:
    return line("write", entity=entity, **({"tier": tier} if tier else {}), key=None)


ROUND = line(
    "round",
    dir="egress",
    phase="Throttling",
    brokers=[{"id": 1, "need": 5}],
    actions=[{"entity": HIDDEN, "tier": "L3"}, {"entity": OWN, "tier": "L3"}],
    notDone=[{"entity": HIDDEN, "why": "small"}],
    conditions=[
        {"reason": "A", "message": f"{HIDDEN} is silent"},
        {"reason": "B", "message": "broker 1 is full"},
    ],
)


def test_nothing_of_a_hidden_tier_is_left_in_any_kind_of_line() -> None:
    lines = [
        write(HIDDEN, "secret/hidden"),
        write(HIDDEN, None),
        write(OWN, "own/tier"),
        write(OWN, None),
        ROUND,
        line("effect", dir="egress", entities=[{"entity": HIDDEN}], brokers=[]),
        line("override", override="own/o", state="begins", entities=[HIDDEN]),
        line("override", override="own/o", state="begins", entities=[HIDDEN, OWN]),
        line("override", override="secret/o", state="begins", entities=[OWN]),
        line("hold", state="ends", reason="Paused", seconds=1),
        line("of-a-later-version", something=HIDDEN),
    ]
    shown, left_out = readable(lines, SIGHT)
    assert "hidden" not in json.dumps(shown)
    assert "hidden" not in " ".join(line_words(one) for one in shown)
    kinds = [one["kind"] for one in shown]
    assert kinds == ["write", "write", "round", "effect", "override", "hold"]
    assert left_out == 8
    assert shown[2]["conditions"] == [{"reason": "B", "message": "broker 1 is full"}]
    assert shown[2]["brokers"] == ROUND["brokers"]


def test_a_tier_of_ones_own_with_a_hidden_users_name_opens_no_line_of_the_hidden_tier() -> None:
    claims_it = Sight(frozenset({HIDDEN}), SIGHT.tiers_in, SIGHT.overrides_in)
    assert readable([write(HIDDEN, "secret/hidden")], claims_it) == ([], 1)


def test_a_member_that_is_gone_is_known_by_the_tier_in_its_last_write() -> None:
    lines = [write("user=gone", None), write("user=gone", "own/tier")]
    assert readable(lines, SIGHT) == (lines, 0)
    others = [write("user=gone", None), write("user=gone", "secret/hidden")]
    assert readable(others, SIGHT) == ([], 2)


def test_defaults_of_the_policy_are_about_the_policy() -> None:
    of_all, of_one = write("user=<default>", None), write("user=x, client-id=<default>", None)
    assert readable([of_all, of_one], SIGHT) == ([of_all], 1)
