"""What a contract means on the leaders of a moment: the number and the exact text for every quota key.

Answers "where to", never "how fast" or "may it be written": see `mute_guard.py` and `key_step.py`.
"""

from collections.abc import Mapping, Set
from dataclasses import replace

from controller_logic.contracts.leaders import LeaderSpread, Scale
from controller_logic.model import Contract, QuotaKey, RateForm
from controller_logic.promise_ground import Ground
from controller_logic.quotas.values import KEY_WORDS, number_words
from controller_logic.reasons import Reason
from controller_logic.value import value

# an enum's member costs ten times as much to look up as a name of this module, and these are looked up for every member
_CONSUMER, _PRODUCER = QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.PRODUCER_BYTE_RATE

_NO_KEYS: frozenset[QuotaKey] = frozenset()
_LENT = " lent"
_EVERYWHERE = Ground(RateForm.PER_BROKER.value)
_DEFAULT = Ground("default")


@value(frozen=True, slots=True)
class Throttled:
    """A byte rate below its contract: what should be in force now, of which contract (bytes/s), and the longest mute that it may cause.

    `floor` is the tier's throttled rate on the same leaders. `because` says why the value changes in this pass; None = it is the same
    share of the contract as before. `rises` says whether the last change on load was a raise.
    """

    value: int
    contract: int
    floor: "Target"
    because: Reason | None = None
    rises: bool = False
    predicted_mute_seconds: float = 0.0


@value(frozen=True, slots=True)
class Target:
    """Where one quota key should end: the number, and the exact text that Kafka's store should hold.

    `promised` is the rate in the contract's own form, `ground` what made it the number. `throttle` is set while the number is a throttle
    of the contract; it is guarded against mutes already.
    """

    value: int
    text: str
    promised: int
    ground: Ground
    throttle: Throttled | None = None

    @property
    def certain(self) -> bool:
        """False while leaders or topics are not known in full."""
        return self.ground.certain

    @property
    def basis(self) -> str:
        """The promise it was computed for (form, rate, method, topics) but not the leaders.

        So an edited promise and a moved leader can be told apart.
        """
        ground = self.ground
        return f"{ground.form} {self.promised}{ground.particulars}"


@value(frozen=True, slots=True)
class Promise:
    """What a contract means on the leaders of a moment.

    `unknown` are managed keys whose target cannot be known (no topic of the member exists, or leaders are unknown): they are
    left as they are, and there are no targets then. `certain` is false while leaders or topics are not known in full. Totals
    over all brokers are in bytes per second, for byte rates only.
    """

    targets: Mapping[QuotaKey, Target]
    unknown: frozenset[QuotaKey] = _NO_KEYS
    spread: LeaderSpread | None = None
    certain: bool = True

    @property
    def keys(self) -> Set[QuotaKey]:
        """Every managed key."""
        return self.unknown or self.targets.keys()

    @property
    def values(self) -> Mapping[QuotaKey, int]:
        return {key: target.value for key, target in self.targets.items()}

    @property
    def is_throttled(self) -> bool:
        """Whether any key is held below its contract."""
        return any(target.throttle is not None for target in self.targets.values())

    @property
    def contract_total(self) -> Mapping[QuotaKey, int]:
        """What was promised over all brokers; empty where the topics have no leader or nobody knows the brokers."""
        return {key: one.promised * one.ground.contract_times for key, one in self.targets.items() if one.ground.contract_times}

    @property
    def permitted_total(self) -> Mapping[QuotaKey, int]:
        """What the numbers allow over all brokers: quota x brokers that lead."""
        return {key: one.value * one.ground.leading_brokers for key, one in self.targets.items() if one.ground.leading_brokers}

    def __str__(self) -> str:
        rates = ", ".join([f"{KEY_WORDS[key]} {number_words(key, target.value)}" for key, target in self.targets.items()])
        if self.spread is None:
            return f"{rates} per broker"
        if not self.spread.leaders:
            return f"{rates} per broker; none of its topics has a leader now"
        return f"{rates} per broker; {self.spread.leaders} partitions led by {self.spread.brokers} brokers, skew {self.spread.skew:.2f}"


NOTHING = Promise({})


def promise_of(contract: Contract | None, ground: Ground | None) -> Promise:
    """What a contract means there; without a ground nothing is promised, and no contract means unlimited."""
    if ground is None:
        return NOTHING
    if contract is None:
        return Promise({}, spread=ground.spread)
    if not ground.known:
        return Promise({}, _managed_keys(contract), ground.spread)
    targets: dict[QuotaKey, Target] = {}
    if contract.request_percentage is not None or contract.controller_mutations_per_second is not None:
        targets |= {key: Target(rate, str(rate), rate, _EVERYWHERE) for key, rate in _fixed(contract) if rate is not None}
    if (rate := contract.fetch_bytes_per_second) is not None:
        targets[_CONSUMER] = _target(rate, ground, ground.scale)
    if (rate := contract.produce_bytes_per_second) is not None:
        targets[_PRODUCER] = _target(rate, ground, ground.produce_scale or ground.scale)
    if contract.lent:
        targets |= {key: _lent(target) for key, target in targets.items() if key in contract.lent}
    return Promise(targets, _NO_KEYS, ground.spread, ground.certain)


def default_promise(rates: Mapping[QuotaKey, int]) -> Promise:
    """What a policy declares for one of Kafka's default entities."""
    return Promise({key: Target(rate, str(rate), rate, _DEFAULT) for key, rate in rates.items()})


def _target(rate: int, ground: Ground, scale: Scale | None) -> Target:
    number = rate if scale is None else scale.of(rate)
    return Target(number, str(number), rate, ground)


def _lent(target: Target) -> Target:
    """The same target, with a basis that says for good that only an override gave it."""
    return replace(target, ground=replace(target.ground, particulars=f"{target.ground.particulars}{_LENT}"))


def is_lent(basis: str) -> bool:
    """Whether only an override gave what was written on this basis."""
    return basis.endswith(_LENT)


def _fixed(contract: Contract) -> tuple[tuple[QuotaKey, int | None], ...]:
    """The quotas that are the same number on every broker wherever the leaders are."""
    return (
        (QuotaKey.REQUEST_PERCENTAGE, contract.request_percentage),
        (QuotaKey.CONTROLLER_MUTATION_RATE, contract.controller_mutations_per_second),
    )


def _managed_keys(contract: Contract) -> frozenset[QuotaKey]:
    rates = ((_CONSUMER, contract.fetch_bytes_per_second), (_PRODUCER, contract.produce_bytes_per_second))
    return frozenset(key for key, rate in (*rates, *_fixed(contract)) if rate is not None)
