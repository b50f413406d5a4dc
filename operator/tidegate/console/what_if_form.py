"""The fields of the page What if, and the edits that they spell."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tidegate.console.whatif import Edits
from tidegate.resources.rates import parse_byte_rate
from tidegate.view.policy import PolicyNow
from tidegate_logic.model import BrokerLimits, Contract, Level, RateForm, metered


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
        limits = BrokerLimits() if declared is None else declared.policy.limits
        self._ways = metered((limits.everywhere, *limits.exceptions.values()))

    def build(self) -> None:
        """Three groups: all brokers, one member, one tier."""
        from nicegui import ui

        def rate_field(label: str) -> Any:
            field = ui.input(label, validation=_problem)
            return field.props('outlined dense placeholder="as it is" stack-label')

        with _group("Brokers"):
            self._limits = {
                way: rate_field(f"{way.value.capitalize()} limit of every broker, such as 40M")
                for way in self._ways
            }
            self._dead = ui.select(
                list(self._now.brokers), label="Brokers that die", multiple=True, value=[]
            ).props("outlined dense use-chips")
            self._load = _percent("Load of all clients, in percent")
        with _group("A member"):
            self._member = ui.select(
                {"": "no member", **{key: key for key in sorted(self._contracts)}},
                value="",
                label="Member",
                with_input=True,
            ).props("outlined dense")
            self._rates = {
                word: rate_field(f"Its {word} contract, such as 10M")
                for word in ("fetch", "produce")
            }
            self._member_load = _percent("Its load, in percent")
        with _group("A tier"):
            self._tier = ui.select(
                {"": "no tier", **{key: key for key in self._tiers}}, value="", label="Tier"
            ).props("outlined dense")
            self._level = ui.select([one.value for one in Level], value="L3", label="Its level")
            self._level.props("outlined dense")

    def is_valid(self) -> bool:
        """Whether every rate reads; where one does not, the field says so."""
        fields = (*self._limits.values(), *self._rates.values())
        return False not in [field.validate() for field in fields]  # each of them says so

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


def _problem(text: str | None) -> str | None:
    """What a field says below itself; None = it reads, or is empty."""
    try:
        if (text or "").strip():
            parse_byte_rate((text or "").strip())
    except ValueError:
        return f"'{text}' is not a rate of 1 KiB/s or more: write 40M, 50Mi or 1.5Gi"
    return None


@contextmanager
def _group(title: str) -> Iterator[None]:
    from nicegui import ui

    with ui.element("fieldset").classes("group"):
        with ui.element("legend"):
            ui.html(title, sanitize=False, tag="span")
        with ui.element("div").classes("form"):
            yield


def _percent(label: str) -> Any:
    from nicegui import ui

    return ui.number(label, value=100, min=0, max=10_000).props("outlined dense")
