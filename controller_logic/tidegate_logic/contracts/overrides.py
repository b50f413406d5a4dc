"""Overrides laid over the tiers: a person's decision on one client or level that ends by itself.

It runs before anything is worked out on leaders, so every later step (scaling, mute guard, budget)
treats an override as it treats a contract. A member with one is never throttled while it lasts.

`rates` takes the place of the contract's byte rates:

- a direction that it names is as it says, in its form; so is a contract where there was none;
- a direction that it does not name stays as the contract has it. A member's rates all have one
  form, so an override that names one direction in another form than the contract, which has the
  other one, fits no member: it changes nothing and says what to write. Anything else would take a
  promise away that the override does not name, or would change it with the leaders;
- quotas that are no byte rates stay.

`exempt` leaves the contract as it is.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tidegate_logic.model import (
    BYTE_RATE_KEYS,
    Contract,
    Entity,
    Level,
    Member,
    Override,
    RateForm,
    Tier,
)
from tidegate_logic.quota_values import KEY_WORDS
from tidegate_logic.reasons import Reason


@dataclass(frozen=True, slots=True)
class NotApplicable:
    """Why an override changes nothing for one member that it names."""

    tier_key: str
    member_name: str
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Overridden:
    """The tiers with overrides laid over them. `tiers` None = the tiers were not known in full.

    `applied` has the override of every entity that has one; `not_applicable` by override key those
    members that an override names and leaves alone. `next_change_seconds` is when the first of all
    begins or ends; None = all are over.
    """

    tiers: tuple[Tier, ...] | None = None
    applied: Mapping[Entity, Override] = field(default_factory=dict)
    not_applicable: Mapping[str, tuple[NotApplicable, ...]] = field(default_factory=dict)
    next_change_seconds: float | None = None


def apply_overrides(
    tiers: tuple[Tier, ...] | None, overrides: Iterable[Override], now_seconds: float
) -> Overridden:
    """Lay the overrides that last over the tiers. Without any the tiers come back as they are.

    Of several for one member the one that names it by user and client id wins over one for its
    level, then the older one; one that does not fit the member's contract counts as absent for it.
    Of members that overlap only the first counts.
    """
    windows = [(override, override.window(now_seconds)) for override in overrides]
    lasting = [one for one, window in windows if window is not None and window.has(now_seconds)]
    changes = [
        window.end_seconds if window.has(now_seconds) else window.begin_seconds
        for _, window in windows
        if window is not None
    ]
    unchanged = Overridden(tiers, next_change_seconds=min(changes, default=None))
    if not lasting or tiers is None:
        return unchanged
    return _OverrideApplication(lasting).over(tiers, unchanged)


class _OverrideApplication:
    """One application of overrides that last, all of them."""

    def __init__(self, lasting: list[Override]) -> None:
        self._of_entity: dict[Entity, list[Override]] = {}
        self._of_level: dict[Level, list[Override]] = {}
        for override in lasting:
            if override.entity is not None:
                self._of_entity.setdefault(override.entity, []).append(override)
            if override.level is not None:
                self._of_level.setdefault(override.level, []).append(override)
        self._seen: set[Entity] = set()
        self._applied: dict[Entity, Override] = {}
        self._not_applicable: dict[str, list[NotApplicable]] = {}

    def over(self, tiers: tuple[Tier, ...], unchanged: Overridden) -> Overridden:
        laid = tuple([self._tier(tier) for tier in tiers])
        not_applicable = {key: tuple(found) for key, found in self._not_applicable.items()}
        return replace(unchanged, tiers=laid, applied=self._applied, not_applicable=not_applicable)

    def _tier(self, tier: Tier) -> Tier:
        members = tuple([self._member(tier, member) for member in tier.members])
        return tier if members == tier.members else replace(tier, members=members)

    def _member(self, tier: Tier, member: Member) -> Member:
        if member.entity in self._seen:
            return member  # it overlaps, and changes nothing
        self._seen.add(member.entity)
        winner: Override | None = None
        laid = member
        for override in (
            *self._of_entity.get(member.entity, ()),
            *self._of_level.get(tier.level, ()),
        ):
            problem = _problem(override, member)
            if winner is not None:
                problem = Reason.OVERRULED, f"override {winner.key} takes precedence over this one"
            if problem is not None:
                self._not_applicable.setdefault(override.key, []).append(
                    NotApplicable(tier.key, member.name, *problem)
                )
                continue
            winner = self._applied[member.entity] = override
            laid = replace(
                member,
                contract=_contract(override, member.contract),
                exempt=True,
                override=override.key,
            )
        return laid


def _problem(override: Override, member: Member) -> tuple[Reason, str] | None:
    """Why the override's rates cannot be the member's."""
    rates, contract = override.rates, member.contract
    if rates is None:
        return None
    if rates.form is RateForm.PER_PARTITION and not member.topics:
        return (
            Reason.OVERRIDE_UNFIT,
            (
                "the member names no topics, so it cannot have a rate per partition: set total or "
                "perBroker instead"
            ),
        )
    kept = [] if contract is None or contract.form is rates.form else _unnamed(rates, contract)
    if contract is not None and kept:
        words = (
            f"its contract has {kept[0]} {contract.form.value}, which would be lost: set it "
            f"too, or set {contract.form.value}"
        )
        return Reason.OVERRIDE_UNFIT, words
    return None


def _unnamed(rates: Contract, contract: Contract) -> list[str]:
    """The directions that the contract has and the override does not name."""
    return [
        words for key, words in KEY_WORDS.items() if contract.gives(key) and not rates.gives(key)
    ]


def _contract(override: Override, contract: Contract | None) -> Contract | None:
    """The contract with the rates that the override sets; see the module's docstring."""
    rates = override.rates
    if rates is None:
        return contract
    contract = contract or Contract(rates.form)
    fetch, produce = rates.fetch_bytes_per_second, rates.produce_bytes_per_second
    return replace(
        contract,
        override_only_keys=frozenset(
            key for key in BYTE_RATE_KEYS if override.sets(key) and not contract.gives(key)
        ),
        form=rates.form,
        fetch_bytes_per_second=contract.fetch_bytes_per_second if fetch is None else fetch,
        produce_bytes_per_second=contract.produce_bytes_per_second if produce is None else produce,
    )
