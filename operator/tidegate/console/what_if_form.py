"""The fields of the page What if, and the edits that they spell."""

from dataclasses import replace

from tidegate.console.whatif import Edits
from tidegate.resources.rates import parse_byte_rate
from tidegate.view.policy import PolicyNow
from tidegate_logic.model import Contract, Direction, Level, RateForm


class WhatIfForm:
    """One viewer's form. `build` makes its elements; NiceGUI is imported there alone."""

    def __init__(self, now: PolicyNow) -> None:
        self._now = now
        declared = now.declared
        tiers = () if declared is None else declared.tiers or ()
        self._contracts = {
            f"{tier.key}/{member.name}": (tier.key, member)
            for tier in tiers
            for member in tier.members
        }
        self._tiers = [tier.key for tier in tiers]

    def build(self) -> None:
        from nicegui import ui

        self._limits = {
            way: ui.input(f"{way.value.capitalize()} limit of every broker, such as 40M").props(
                "outlined dense"
            )
            for way in Direction
        }
        self._dead = ui.select(
            list(self._now.brokers), label="Brokers that die", multiple=True, value=[]
        ).props("outlined dense use-chips")
        self._load = ui.number("Load of all clients, in percent", value=100, min=0, max=10_000)
        self._load.props("outlined dense")
        self._member = ui.select(
            {"": "no member", **{key: key for key in sorted(self._contracts)}},
            value="",
            label="Contract of member",
            with_input=True,
        ).props("outlined dense")
        self._rates = {
            word: ui.input(f"its {word}, such as 10M").props("outlined dense")
            for word in ("fetch", "produce")
        }
        self._member_load = ui.number("its load, in percent", value=100, min=0, max=10_000)
        self._member_load.props("outlined dense")
        self._tier = ui.select(
            {"": "no tier", **{key: key for key in self._tiers}}, value="", label="Level of tier"
        ).props("outlined dense")
        self._level = ui.select([level.value for level in Level], value="L3", label="its level")
        self._level.props("outlined dense")

    def edits(self) -> Edits:
        """Raises ValueError for a rate that does not read."""
        load: dict[tuple[str, str] | None, float] = {}
        if self._load.value not in (None, 100):
            load[None] = float(self._load.value)
        contracts = {}
        if self._member.value:
            tier_key, member = self._contracts[self._member.value]
            if self._member_load.value not in (None, 100):
                load[tier_key, member.name] = float(self._member_load.value)
            given = {word: _rate(f.value, word) for word, f in self._rates.items() if f.value}
            if given:
                old = member.contract or Contract(RateForm.PER_BROKER)
                contracts[tier_key, member.name] = replace(
                    old,
                    fetch_bytes_per_second=given.get("fetch", old.fetch_bytes_per_second),
                    produce_bytes_per_second=given.get("produce", old.produce_bytes_per_second),
                )
        limits = {
            way: _rate(one.value, f"{way.value} limit")
            for way, one in self._limits.items()
            if one.value
        }
        levels = {self._tier.value: Level(self._level.value)} if self._tier.value else {}
        return Edits(limits, frozenset(self._dead.value or ()), contracts, levels, load)


def _rate(text: str, what: str) -> int:
    try:
        return parse_byte_rate(text.strip())
    except ValueError as error:
        raise ValueError(f"{what} {text!r}: {error}") from None
