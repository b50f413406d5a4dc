"""Reading checked values out of a parsed TOML table, so that every mistake is told with its place and what must hold."""

from collections.abc import Collection, Iterator
from enum import StrEnum
from typing import Any

from controller_logic.model import MAX_BYTE_RATE, MIN_BYTE_RATE


class ScenarioError(Exception):
    """A scenario that cannot be played; the message says what must hold and where."""


class Words:
    """One table of the file. Whatever is read is struck off, and `nothing_else` refuses what is left: a typo is never ignored."""

    def __init__(self, table: dict[str, Any], where: str) -> None:
        self.where = where
        self._table = table
        self._unread = set(table)

    def nothing_else(self) -> None:
        if self._unread:
            raise ScenarioError(f"{self.where} has {', '.join(sorted(self._unread))}, which means nothing here")

    def spoken(self, *without: str) -> str:
        """Everything that the table says, for people."""
        return ", ".join(f"{key} {_spoken(value)}" for key, value in self._table.items() if key not in without)

    def text(self, key: str, default: str) -> str:
        return str(self._typed(key, str, "text", default))

    def number(self, key: str, least: float, most: float, default: float | None = None) -> float:
        value = self._take(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise ScenarioError(f"{self.where}: {key} must be a number from {least:g} to {most:g}, not {value!r}")
        return float(value)

    def integer(self, key: str, least: int, most: int, default: int | None = None) -> int:
        value = self._take(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ScenarioError(f"{self.where}: {key} must be a whole number from {least} to {most}, not {value!r}")
        return value

    def rate(self, key: str) -> int:
        return self.integer(key, MIN_BYTE_RATE, MAX_BYTE_RATE)

    def rate_or_none(self, key: str) -> int | None:
        return self.rate(key) if key in self._table else None

    def one_of(self, key: str, choices: type[StrEnum], default: StrEnum | None = None) -> str:
        value = self._take(key, default)
        if value not in list(choices):
            raise ScenarioError(f"{self.where}: {key} must be one of {', '.join(choices)}, not {value!r}")
        return str(value)

    def table(self, key: str) -> "Words":
        return Words(self._typed(key, dict, "a table", {}), f"{self.where}, {key}" if self.where != "the scenario" else key)

    def tables(self, key: str) -> Iterator["Words"]:
        for place, table in enumerate(self._typed(key, list, "a list of tables", []), 1):
            if not isinstance(table, dict):
                raise ScenarioError(f"entry {place} of {key} must be a table")
            yield Words(table, f"entry {place} of {key}")

    def brokers(self, key: str) -> Iterator[tuple[int, "Words"]]:
        found = self._typed(key, dict, "a table of brokers by id", {})
        if not found:
            raise ScenarioError(f"{self.where} needs at least one broker, [{key}.1]")
        for name, table in found.items():
            if not isinstance(table, dict):
                raise ScenarioError(f"{key}.{name} must be a table")
            yield self._broker_id(name, key), Words(table, f"{key}.{name}")

    def numbers_by_broker(self, key: str, known: Collection[int]) -> dict[int, float]:
        found = self._typed(key, dict, "a table of numbers by broker id", {})
        ids = {self._known_broker(name, key, known): value for name, value in found.items()}
        return {broker: self._not_negative(key, value) for broker, value in ids.items()}

    def numbers_by_name(self, key: str, known: Collection[str]) -> dict[str, float]:
        found = self._typed(key, dict, "a table of numbers by user", {})
        if unknown := found.keys() - set(known):
            raise ScenarioError(f"{self.where}: {key} names {', '.join(sorted(unknown))}, who is none of the users")
        return {name: self._not_negative(key, value) for name, value in found.items()}

    def cards(self, key: str, known: Collection[int]) -> dict[int, float | bool | None]:
        """What each card is made to say: a number (also a false one), None for nothing, True for the truth."""
        found = self._typed(key, dict, "a table by broker id", {})
        return {self._known_broker(name, key, known): self._card(key, value) for name, value in found.items()}

    def broker_list(self, key: str, known: Collection[int]) -> frozenset[int] | None:
        if key not in self._table:
            return None
        return frozenset(self._known_broker(str(name), key, known) for name in self._typed(key, list, "a list of broker ids", []))

    def _card(self, key: str, value: Any) -> float | bool | None:
        if value == "none":
            return None
        if value == "true":
            return True
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ScenarioError(f'{self.where}: {key} must be a number, "none" or "true", not {value!r}')
        return float(value)

    def _not_negative(self, key: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_BYTE_RATE:
            raise ScenarioError(f"{self.where}: {key} must hold numbers from 0 to {MAX_BYTE_RATE}, not {value!r}")
        return float(value)

    def _known_broker(self, name: str, key: str, known: Collection[int]) -> int:
        broker = self._broker_id(name, key)
        if broker not in known:
            raise ScenarioError(f"{self.where}: {key} names broker {broker}, which is none of the brokers")
        return broker

    def _broker_id(self, name: str, key: str) -> int:
        if not name.isdecimal():
            raise ScenarioError(f"{self.where}: {key} must name brokers by id, not {name!r}")
        return int(name)

    def _typed(self, key: str, wanted: type, words: str, default: Any) -> Any:
        value = self._take(key, default)
        if not isinstance(value, wanted):
            raise ScenarioError(f"{self.where}: {key} must be {words}, not {value!r}")
        return value

    def _take(self, key: str, default: Any) -> Any:
        self._unread.discard(key)
        if key not in self._table and default is None:
            raise ScenarioError(f"{self.where} lacks {key}")
        return self._table.get(key, default)


def _spoken(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} = {_spoken(one)}" for name, one in value.items())
    return ", ".join(map(_spoken, value)) if isinstance(value, list) else f"{value:,}" if isinstance(value, int) else str(value)
