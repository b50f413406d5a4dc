"""QuotaOverrides as the core understands them; one that does not read changes nothing and is told apart.

It reads raw objects and asks nobody. Whether an override is over is not looked at here: that depends on when a pass is made.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from controller_logic.model import Contract, Entity, Level, Override, RateForm
from tidegate.control.translate import object_key
from tidegate.errors import InvalidResource
from tidegate.resources.fields import parse_moment
from tidegate.resources.kinds import parse_override
from tidegate.resources.tiers import MAX_DAYS_AHEAD, OverrideRates, OverrideSpec

_SECONDS_A_DAY = 86_400


@dataclass(frozen=True, slots=True)
class BrokenOverride:
    """An override that does not read, and why."""

    key: str
    message: str


def read_override(raw: Mapping[str, Any]) -> Override | BrokenOverride:
    """One override, or why it is none."""
    try:
        return override_from(raw, parse_override(raw, strict=False).spec)
    except InvalidResource as error:
        return BrokenOverride(object_key(raw), error.message)


def read_overrides(overrides: Iterable[Mapping[str, Any]]) -> tuple[tuple[Override, ...], tuple[BrokenOverride, ...]]:
    """Those that read, in the order in which they are given, and those that do not."""
    read = [read_override(raw) for raw in overrides]
    return tuple(one for one in read if isinstance(one, Override)), tuple(one for one in read if isinstance(one, BrokenOverride))


def override_from(raw: Mapping[str, Any], spec: OverrideSpec) -> Override:
    """One override. Raises InvalidResource when it ends later than an override may."""
    _refuse_a_late_end(raw, spec)
    return Override(
        key=object_key(raw),
        expires_at_seconds=parse_moment(spec.expires_at),
        reason=spec.reason,
        entity=None if spec.level is not None else Entity(user=spec.user, client_id=spec.client_id),
        level=None if spec.level is None else Level(spec.level),
        rates=None if spec.rates is None else _rates(spec.rates),
    )


def _refuse_a_late_end(raw: Mapping[str, Any], spec: OverrideSpec) -> None:
    """Both times come out of the object, so no clock of ours has a say; a file that was never applied has no first time."""
    made = raw["metadata"].get("creationTimestamp")
    if made and parse_moment(spec.expires_at) > parse_moment(str(made)) + MAX_DAYS_AHEAD * _SECONDS_A_DAY:
        raise InvalidResource(
            f"QuotaOverride {object_key(raw)}: spec.expiresAt {spec.expires_at} is more than {MAX_DAYS_AHEAD} days after the object was "
            f"made ({made}), so it changes nothing until it names an earlier end. To go on for longer, make another override later"
        )


def _rates(rates: OverrideRates) -> Contract:
    forms = {RateForm.PER_PARTITION: rates.per_partition, RateForm.PER_BROKER: rates.per_broker, RateForm.TOTAL: rates.total}
    form, pair = next((form, pair) for form, pair in forms.items() if pair is not None)
    return Contract(form, fetch_bytes_per_second=pair.fetch, produce_bytes_per_second=pair.produce)
