"""What a member may be throttled to, what a throttled key is held at, and how that stands in place of its contract for the plan."""

from collections.abc import Mapping
from dataclasses import replace

from controller_logic.contracts.targets import Promise, Target, Throttled
from controller_logic.entity import Entity
from controller_logic.model import Contract, Level, Member, QuotaKey, RateForm, Tier

HeldKeys = Mapping[QuotaKey, Throttled]
HeldDown = Mapping[Entity, HeldKeys]


def throttled_rates(tier: Tier, member: Member) -> Contract | None:
    """What the tier gives in the form of the member's contract; without a contract, in that of its topics. None = it is never throttled."""
    if tier.level is Level.L0 or member.exempt:
        return None
    without_contract = RateForm.PER_PARTITION if member.topics else RateForm.PER_BROKER
    form = without_contract if member.contract is None else member.contract.form
    return next((rates for rates in tier.throttled if rates.form is form), None)


def held_down(promise: Promise, held: HeldKeys) -> Promise:
    """The promise with the held keys at what they are held at; a key without a contract gets a target while it is held."""
    targets = {key: _held(promise.targets.get(key, one.floor), one) for key, one in held.items()}
    return replace(promise, targets={**promise.targets, **targets})


def _held(target: Target, held: Throttled) -> Target:
    return replace(target, value=held.value, text=str(held.value), throttle=held)
