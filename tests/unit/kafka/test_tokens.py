"""When tokens are fetched, kept and given up, and what a token is without its server."""

from __future__ import annotations

import base64
import json
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tidegate.errors import TidegateError, Unauthorized, Unreachable
from tidegate.kafka.settings import Token
from tidegate.kafka.tokens import GivenToken, KeptTokens, claims_of, expiry_of
from tidegate_logic.reasons import Reason


@dataclass
class Source:
    """Gives tokens that live for 100 s, by a clock that is set; or fails."""

    now: float = 1000.0
    fails: TidegateError | None = None
    asked: int = 0

    def fetch(self) -> Token:
        self.asked += 1
        if self.fails is not None:
            raise self.fails
        return Token(f"token-{self.asked}", self.now + 100)


@dataclass
class Kept:
    source: Source = field(default_factory=Source)

    def __post_init__(self) -> None:
        self.tokens = KeptTokens(self.source.fetch, clock=lambda: self.source.now)

    def at(self, seconds: float) -> str:
        self.source.now = 1000.0 + seconds
        return self.tokens.current().value


AWAY = Unreachable(Reason.TOKEN_UNAVAILABLE, "away")


def test_a_token_is_kept_until_four_fifths_of_its_life_are_over() -> None:
    kept = Kept()
    assert [kept.at(0), kept.at(79), kept.at(81), kept.at(82)] == [
        "token-1",
        "token-1",
        "token-2",
        "token-2",
    ]
    assert kept.source.asked == 2


def test_while_the_source_fails_the_last_token_is_used_as_long_as_it_is_valid() -> None:
    kept = Kept()
    kept.at(0)
    kept.source.fails = AWAY
    assert kept.at(90) == "token-1"
    with pytest.raises(Unreachable):
        kept.at(96)
    kept.source.fails = None
    assert kept.at(99).startswith("token-")


def test_a_source_that_fails_is_not_asked_by_every_connection() -> None:
    kept = Kept(Source(fails=AWAY))
    for seconds in (0, 0.5, 1.9):
        with pytest.raises(Unreachable):
            kept.at(seconds)
    assert kept.source.asked == 1
    with pytest.raises(Unreachable):
        kept.at(2.1)
    assert kept.source.asked == 2


def test_a_refused_token_is_not_used_again() -> None:
    kept = Kept()
    kept.at(0)
    kept.tokens.forget()
    assert kept.at(1) == "token-2"


# --- given tokens ---------------------------------------------------------------------------------


def jwt(**claims: object) -> str:
    def part(document: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(document).encode()).decode().rstrip("=")

    return f"{part({'alg': 'none'})}.{part(claims)}.c2lnbmF0dXJl"


def test_a_file_is_read_each_time_and_an_expired_token_is_not_sent(tmp_path: Path) -> None:
    file = tmp_path / "kafka"
    given = GivenToken("The token kafka", file=file)
    with pytest.raises(Unreachable, match="cannot be read"):
        given.fetch()
    file.write_text(jwt(exp=time.time() + 600) + "\n")
    first = given.fetch()
    assert first.value == file.read_text().strip()
    assert first.expires_at_seconds <= time.time() + 60, "it may be replaced long before"
    file.write_text(jwt(exp=time.time() - 5))
    with pytest.raises(Unreachable, match="expired") as expired:
        given.fetch()
    assert expired.value.reason is Reason.TOKEN_UNAVAILABLE
    assert file.read_text() not in expired.value.message


@pytest.mark.parametrize("text", ["two words", "a\x01auth=Bearer b", "ünïcode"])
def test_a_token_that_would_end_the_message_is_not_sent_or_shown(text: str) -> None:
    with pytest.raises(Unauthorized) as refused:
        GivenToken("The token", text).fetch()
    assert text not in refused.value.message


def test_what_is_not_a_json_web_token_claims_nothing() -> None:
    for text in ("", "opaque", "a.b.c", "..", f"a.{base64.b64encode(b'[1]').decode()}.c"):
        assert claims_of(text) == {}
        assert expiry_of(text) is None
    assert expiry_of(jwt(exp=True)) is None
    assert expiry_of(jwt(exp=12.5)) == 12.5
