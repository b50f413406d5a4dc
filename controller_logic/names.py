"""The closed lists of words that resources, ledger and decisions share. What they mean is said where they are used."""

from enum import StrEnum


class QuotaKey(StrEnum):
    """The four client quota keys by Kafka's own names; byte rates are per broker."""

    __hash__ = str.__hash__  # an enum's own is a Python call, and these are looked up a hundred thousand times in a pass

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    REQUEST_PERCENTAGE = "request_percentage"
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"


BYTE_RATE_KEYS = frozenset({QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE})


class Level(StrEnum):
    """How important a tier is; L0 is never throttled below its contract."""

    L0 = "L0"
    L1 = "L1"
    L2 = "L2"
    L3 = "L3"


class Mode(StrEnum):
    OBSERVE = "Observe"
    ENFORCE = "Enforce"


class DeletionPolicy(StrEnum):
    RESTORE = "Restore"
    KEEP = "Keep"


class ScalingMethod(StrEnum):
    MAX = "Max"
    MEAN = "Mean"
    MIN = "Min"
    ADAPTIVE = "Adaptive"


class Speed(StrEnum):
    """How an entity moves to its throttled rate: by safe steps, or by drain-then-set where that is safe."""

    LADDER = "Ladder"
    DRAIN = "Drain"


class RateForm(StrEnum):
    """In which form a rate is promised."""

    PER_PARTITION = "perPartition"
    PER_BROKER = "perBroker"
    TOTAL = "total"
