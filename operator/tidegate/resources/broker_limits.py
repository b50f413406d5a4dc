"""The part of a policy that says how much traffic a single broker may carry before tiers are throttled."""

from typing import Any

from pydantic import Field

from tidegate.resources.byte_rate import ByteRate, cel_at_most
from tidegate.resources.metrics_source import BrokerId
from tidegate.resources.rules import Rule
from tidegate.resources.schema import SchemaModel


def _limit_fits_capacity(limits: Any) -> bool:
    return limits.egress_limit is None or limits.egress_capacity is None or limits.egress_limit <= limits.egress_capacity


_LIMIT_FITS_CAPACITY = Rule(
    cel=f"!has(self.egressLimit) || !has(self.egressCapacity) || {cel_at_most('self.egressLimit', 'self.egressCapacity')}",
    message="egressLimit must not be above egressCapacity: the card could never reach its limit",
    field_path=".egressLimit",
    holds=_limit_fits_capacity,
)
_HAS_A_LIMIT = Rule(
    cel="has(self.egressLimit) || has(self.ingressLimit) || has(self.egressCapacity)",
    message="must have at least one of egressLimit, ingressLimit and egressCapacity",
    holds=lambda limits: not (limits.egress_limit is None and limits.ingress_limit is None and limits.egress_capacity is None),
)


class BrokerLimitOverride(SchemaModel):
    """Other limits for some brokers."""

    ids: tuple[BrokerId, ...] = Field(
        min_length=1,
        max_length=64,
        description="Ids of the brokers.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    egress_limit: ByteRate | None = Field(default=None, description="Bytes per second out of these brokers. Unset means as for the others.")
    ingress_limit: ByteRate | None = Field(default=None, description="Bytes per second into these brokers. Unset means as for the others.")
    egress_capacity: ByteRate | None = Field(default=None, description="The speed of these brokers' cards. Unset means as for the others.")

    rules = (
        _HAS_A_LIMIT,
        _LIMIT_FITS_CAPACITY,
        Rule(
            cel="",
            message="every broker id may appear once only",
            field_path=".ids",
            holds=lambda override: len(set(override.ids)) == len(override.ids),
        ),
    )


def _override_fits_capacity(limits: Any) -> bool:
    capacity = limits.egress_capacity
    return capacity is None or all(
        o.egress_capacity is not None or o.egress_limit is None or o.egress_limit <= capacity for o in limits.overrides or ()
    )


def _ids_are_disjoint(limits: Any) -> bool:
    ids = [broker for override in limits.overrides or () for broker in override.ids]
    return len(set(ids)) == len(ids)


class BrokerLimits(SchemaModel):
    """The threshold of every single broker, and of some that differ."""

    egress_limit: ByteRate | None = Field(
        default=None, description="Bytes per second out of a broker above which tiers are throttled. Unset means no limit."
    )
    ingress_limit: ByteRate | None = Field(
        default=None, description="Bytes per second into a broker above which tiers are throttled. Unset means no limit."
    )
    egress_capacity: ByteRate | None = Field(
        default=None,
        description="Speed of a broker's network card in bytes per second. Absurd readings are refused against it, "
        "and a full link is known by it.",
    )
    overrides: tuple[BrokerLimitOverride, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=20,
        description="Brokers with other limits. A broker may be named once only.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )

    rules = (
        _HAS_A_LIMIT,
        _LIMIT_FITS_CAPACITY,
        Rule(
            cel=(
                "!has(self.egressCapacity) || !has(self.overrides) || "
                "self.overrides.all(o, has(o.egressCapacity) || !has(o.egressLimit) || "
                + cel_at_most("o.egressLimit", "self.egressCapacity")
                + ")"
            ),
            message="an egressLimit in overrides must not be above egressCapacity; give the override an egressCapacity of its own",
            field_path=".overrides",
            holds=_override_fits_capacity,
        ),
        Rule(
            cel="!has(self.overrides) || self.overrides.all(a, a.ids.all(i, self.overrides.exists_one(b, i in b.ids)))",
            message="a broker may appear in one override only",
            field_path=".overrides",
            holds=_ids_are_disjoint,
        ),
    )

    def egress_limit_of(self, broker_id: int) -> int | None:
        """Bytes per second out of one broker; None where no limit is set for it."""
        override = self._override_of(broker_id)
        return self.egress_limit if override is None or override.egress_limit is None else override.egress_limit

    def ingress_limit_of(self, broker_id: int) -> int | None:
        """Bytes per second into one broker; None where no limit is set for it."""
        override = self._override_of(broker_id)
        return self.ingress_limit if override is None or override.ingress_limit is None else override.ingress_limit

    def egress_capacity_of(self, broker_id: int) -> int | None:
        """Speed of one broker's card in bytes per second; None where it is not known."""
        override = self._override_of(broker_id)
        return self.egress_capacity if override is None or override.egress_capacity is None else override.egress_capacity

    def _override_of(self, broker_id: int) -> BrokerLimitOverride | None:
        return next((override for override in self.overrides or () if broker_id in override.ids), None)
