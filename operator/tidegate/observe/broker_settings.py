"""What the brokers' settings mean for quotas: plugins that replace them, reads from followers,
cordoned brokers.

Brokers are asked seldom, when they have stayed for a while, and beside the passes: no pass waits
for a broker that does not answer. Such a broker, and one that refuses, is asked again later and
later. What is not known changes nothing.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Thread
from typing import Protocol

from tidegate_logic.model import Member, Policy, RateForm, ReplicaSelection, Tier
from tidegate_logic.words import broker_words, counted

PLUGIN = "client.quota.callback.class"
SELECTOR, RACK = "replica.selector.class", "broker.rack"
CORDONED, LOG_DIRS = "cordoned.log.dirs", "log.dirs"
# every broker has a value for the last one, so only one that refuses has an empty answer
_ASKED = (PLUGIN, SELECTOR, RACK, CORDONED, LOG_DIRS, "quota.window.num")

SETTLE_SECONDS = 60.0
REPEAT_SECONDS = 600.0
LONGEST_REPEAT_SECONDS = 4 * 3600.0
ASKED_TOGETHER = 64

Settings = Mapping[int, Mapping[str, str]]


class SettingsSource(Protocol):
    """Where brokers are asked; `kafka.brokers` is the real one."""

    def settings(self, brokers: Collection[int], names: Collection[str]) -> Settings:
        """Broker -> its settings of these names that are set; {} = it refuses to show them.

        Those without an answer are left out. It may take some seconds, and may be called beside
        `TopologySource.read`, from another thread.
        """
        ...


@dataclass(slots=True)
class BrokerSettings:
    """The settings of a cluster's brokers. They are asked after `settle_seconds` without a change.

    Each is asked once while it stays. With `beside` the answers are for a later pass; without, the
    pass waits for them.
    """

    settle_seconds: float = SETTLE_SECONDS
    beside: bool = True
    _source: SettingsSource | None = None
    _brokers: frozenset[int] = frozenset()
    _due_at_seconds: dict[int, float] = field(default_factory=dict)
    _silences: dict[int, int] = field(default_factory=dict)
    _known: Settings = field(default_factory=dict)
    _question: Thread | None = None

    @property
    def has_selectors(self) -> bool:
        """Whether a broker is known to let consumers read from followers."""
        return any(_selector(answer) != _LEADERS_ONLY for answer in self._known.values())

    def seen(self, source: SettingsSource, brokers: frozenset[int], now_seconds: float) -> Settings:
        """What is known of `brokers`, as `SettingsSource` answers; asks when it is due."""
        if source is not self._source or brokers != self._brokers:
            before = self._due_at_seconds if source is self._source else {}
            settled_at_seconds = now_seconds + self.settle_seconds
            self._due_at_seconds = {
                one: max(before.get(one, 0.0), settled_at_seconds) for one in brokers
            }
            self._source, self._brokers = source, brokers
        due = sorted(brokers, key=lambda one: self._due_at_seconds[one])
        due = [one for one in due if self._due_at_seconds[one] <= now_seconds][:ASKED_TOGETHER]
        if due and (self._question is None or not self._question.is_alive()):
            self._ask(source, due, now_seconds)
        return {one: answer for one, answer in self._known.items() if one in brokers}

    def _ask(self, source: SettingsSource, due: Sequence[int], now_seconds: float) -> None:
        for one in due:
            silences = self._silences.get(one, 0)
            self._silences[one] = silences + 1
            self._due_at_seconds[one] = now_seconds + min(
                REPEAT_SECONDS * 2.0**silences, LONGEST_REPEAT_SECONDS
            )
        self._question = Thread(target=self._take_answers, args=(source, due), daemon=True)
        self._question.start()
        if not self.beside:
            self._question.join()

    def _take_answers(self, source: SettingsSource, asked: Sequence[int]) -> None:
        answers = source.settings(asked, _ASKED)
        for one, answer in answers.items():
            if answer:
                self._silences.pop(one, None)
                self._due_at_seconds[one] = float("inf")
        self._known = {**self._known, **answers}

    @property
    def known(self) -> Settings:
        """All that brokers have answered so far."""
        return self._known


# --- do brokers obey Kafka's quotas? One with `client.quota.callback.class` has a plugin instead --


def plugins_of(settings: Settings) -> Mapping[int, str]:
    """Broker -> class of its quota plugin, for those that are known to have one."""
    return {one: answer[PLUGIN] for one, answer in settings.items() if PLUGIN in answer}


def plugin_words(plugins: Mapping[int, str]) -> str:
    """The warning: which brokers, which plugin, and the consequence."""
    by_class: dict[str, list[str]] = {}
    for broker, name in sorted(plugins.items()):
        by_class.setdefault(name, []).append(str(broker))
    who = "; ".join(
        f"{_they_set(brokers)} client.quota.callback.class to {name}"
        for name, brokers in by_class.items()
    )
    return (
        f"{who}: such a plugin decides by itself and may ignore every quota of users and "
        f"client ids, so contracts may not hold there"
    )


def _they_set(brokers: list[str]) -> str:
    return f"broker {brokers[0]} sets" if len(brokers) == 1 else f"brokers {', '.join(brokers)} set"


# --- does a broker take new partitions? Not a cordoned one (KIP-1066, Kafka 4.3) ------------------
#
# Somebody will probably empty it next. That is shown by commands, which ask when they run, and
# changes no decision: quotas follow each leader when it moves.


def cordoned_brokers(settings: Settings) -> frozenset[int]:
    """Those with every log directory in `cordoned.log.dirs`. One of several is not enough."""
    return frozenset(one for one, answer in settings.items() if _is_cordoned(answer))


def _is_cordoned(answer: Mapping[str, str]) -> bool:
    cordoned, all_of_them = (
        {place.strip() for place in answer.get(name, "").split(",") if place.strip()}
        for name in (CORDONED, LOG_DIRS)
    )
    return "*" in cordoned or (bool(all_of_them) and all_of_them <= cordoned)


def cordoned_finding(brokers: Collection[int]) -> str:
    """Which brokers take no new partitions. Ends without a stop."""
    takes = "takes" if len(brokers) == 1 else "take"
    return f"{broker_words(brokers)} {takes} no new partitions (cordoned.log.dirs)"


CORDONED_IMPACT = (
    "When partitions are moved away from there, quotas follow their leaders "
    "(leaderScaling.minimumChangePercent says from which change on)"
)


# --- which replica serves consumers? With `replica.selector.class` the nearest one may (KIP-392) --
#
# The core scales fetch quotas by the replicas that serve then: `contracts/fetch_spread.py`. Brokers
# without a rack are a place of their own: a consumer in the only rack reads from its followers.

_RACK_AWARE, _LEADERS_ONLY = "RackAwareReplicaSelector", "LeaderSelector"


def _selector(answer: Mapping[str, str]) -> str:
    return answer.get(SELECTOR, _LEADERS_ONLY).rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class FollowerReads:
    """Which brokers let consumers read from followers.

    `selectors` has the class name on each broker that does, `leaders_only` are the others known.
    `racks` counts the racks, `smallest_share` is the part of the brokers that is in the smallest
    one (None = none is set). `refused` does not show its settings, `silent` did not answer yet.
    `rack_of` has the rack of each broker that is known to have one.
    """

    selectors: Mapping[int, str]
    leaders_only: frozenset[int]
    racks: int
    smallest_share: float | None
    refused: frozenset[int]
    silent: frozenset[int]
    rack_of: Mapping[int, str] = field(default_factory=dict)

    @property
    def selection(self) -> ReplicaSelection | None:
        """The same for decisions; None while it is not known whether any broker has a selector."""
        unknown = self.refused | self.silent
        if unknown and not self.selectors:
            return None
        by_rack = frozenset(one for one, name in self.selectors.items() if name == _RACK_AWARE)
        return ReplicaSelection(by_rack, frozenset(self.selectors) - by_rack, unknown, self.rack_of)

    @classmethod
    def of(cls, brokers: Collection[int], settings: Settings) -> "FollowerReads":
        """What these answers say of the live brokers."""
        known = {one: settings[one] for one in brokers if settings.get(one)}
        refused = frozenset(one for one in brokers if one in settings and not settings[one])
        places = Counter(answer.get(RACK, "") for answer in known.values())
        named = [count for rack, count in places.items() if rack]
        selectors: dict[int, str] = {}
        for one, answer in known.items():
            name = _selector(answer)
            if name != _LEADERS_ONLY and (name != _RACK_AWARE or len(places) > 1):
                selectors[one] = name
        return cls(
            selectors,
            frozenset(known) - selectors.keys(),
            len(named),
            min(named) / len(known) if named else None,
            refused,
            frozenset(brokers) - known.keys() - refused,
            {one: answer[RACK] for one, answer in known.items() if RACK in answer},
        )

    def finding(self) -> str:
        """Which brokers do it, by which selector, and which do not. Ends without a stop."""
        by_class: dict[str, list[int]] = {}
        for broker, name in sorted(self.selectors.items()):
            by_class.setdefault(name, []).append(broker)
        who = " and ".join(f"{broker_words(which)} ({name})" for name, which in by_class.items())
        does = "lets" if len(self.selectors) == 1 else "let"
        return f"{who} {does} consumers read from the nearest replica{''.join(self._others())}"

    def _others(self) -> Iterator[str]:
        if self.leaders_only:
            does = "does" if len(self.leaders_only) == 1 else "do"
            yield f"; {broker_words(self.leaders_only)} {does} not"
        if self.refused | self.silent:
            yield f"; not known of {broker_words(self.refused | self.silent)}"

    def impact(self) -> str:
        """What that means for fetch contracts. Ends without a stop."""
        down_to = (
            ""
            if self.smallest_share is None
            else f", down to about {100 * self.smallest_share:.0f} % of it in the smallest of "
            f"{counted(self.racks, 'rack')}"
        )
        return (
            "Fetch contracts follow the racks that a member declares, or else its measured reads. "
            "Without either, leaders scale them, and a member whose consumers set client.rack may "
            f"get less than its contract{down_to}, or more with consumers in several racks. "
            "Producers are not affected"
        )


FOLLOWER_READS_FIX = (
    "Set racks on members whose consumers set client.rack, or spec.metrics on the policy"
)


def follower_reads_words(reads: FollowerReads) -> str:
    """Finding, impact and fix, for a condition or a note."""
    finding = reads.finding()
    return f"{finding[:1].upper()}{finding[1:]}. {reads.impact()}. {FOLLOWER_READS_FIX}"


def follower_reads_notes(
    reads: FollowerReads | None, tiers: Iterable[Tier] | None, policy: Policy
) -> tuple[str, ...]:
    """The note for a plan: one where followers serve reads and leaders still scale them."""
    if reads is None or not reads.selectors or not leaders_scale_reads(tiers or (), policy):
        return ()
    return (f"{follower_reads_words(reads)}.",)


def leaders_scale_reads(tiers: Iterable[Tier], policy: Policy) -> bool:
    """Whether leaders scale a fetch contract: it has neither declared racks nor measured reads."""
    return not policy.measured and any(not member.racks for member in _scaled_fetch(tiers))


def has_scaled_fetch(tiers: Iterable[Tier]) -> bool:
    """Whether a member has a fetch contract that depends on where its topics are read."""
    return any(_scaled_fetch(tiers))


def _scaled_fetch(tiers: Iterable[Tier]) -> Iterator[Member]:
    for tier in tiers:
        for member in tier.members:
            contract = member.contract
            if contract is None or contract.form is RateForm.PER_BROKER:
                continue
            if contract.fetch_bytes_per_second is not None:
                yield member
