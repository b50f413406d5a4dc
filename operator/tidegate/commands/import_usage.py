"""Contracts for clients that have no quota yet, by what they moved: `import --from-usage`.

The formula is that of recommended contracts (`controller_logic.contracts.recommend`), perBroker:
p99 of five-minute rates on the busiest broker, times the headroom, rounded up to three digits. It
differs in one thing: five minutes in which a client moved nothing do not count. A contract is also
needed by a job that runs ten minutes a day, and to have been idle says nothing of what it needs.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Annotated

import typer

from tidegate.commands import options
from tidegate.commands.context import CommandContext
from tidegate.commands.import_tiers import Proposals, matches_any, quantity
from tidegate.commands.inputs import PolicySource, metrics_of
from tidegate.errors import InvalidResource
from tidegate.prometheus.settings import (
    BrokerInstances,
    BrokerLabel,
    MetricsSettings,
    PrometheusServer,
)
from tidegate.prometheus.usage_windows import ClientUsage, KnownTime, Period, UsageReading
from tidegate_logic.contracts.recommend import rounded_up
from tidegate_logic.model import (
    BYTE_RATE_KEYS,
    BYTE_RATE_OF,
    DIRECTION_OF,
    MAX_BYTE_RATE,
    AdviceTerms,
    Entity,
    Level,
    StoredQuota,
)
from tidegate_logic.words import rate_words, rfc3339

_HOUR, _DAY = 3600, 86_400
_MOST_DAYS = 30
# Less is felt by no broker, and mutes a client for its first message.
LEAST_BYTES_PER_SECOND = 100_000
_TIME = re.compile(r"([1-9][0-9]{0,3})([hd])")
_MATCHER = re.compile(r"([a-zA-Z_][a-zA-Z0-9_]*)=(.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Existing:
    """What is there: quotas, who is in a tier already, the policy and the live brokers.

    No `source` = no policy was read, and `policy_key` is only written down. No `brokers` = not
    known which live, for the reason in `unread` where they were asked.
    """

    policy_key: str
    stored: Mapping[Entity, StoredQuota]
    known: frozenset[Entity] = frozenset()
    source: PolicySource | None = None
    brokers: frozenset[int] | None = None
    unread: str = ""


@dataclass(frozen=True, slots=True)
class UsageOptions:
    """Whether usage is read, and how; None = as the policy says."""

    from_usage: Annotated[
        str | None,
        typer.Option(
            "--from-usage",
            metavar="TIME",
            help="Also propose contracts for clients without a quota, by their traffic in this "
            "time: whole hours or days such as 7d, at most 30 days.",
        ),
    ] = None
    headroom_percent: Annotated[
        int | None,
        typer.Option(
            "--headroom-percent",
            min=0,
            max=1000,
            help="Headroom of such a contract above the 99th percentile. Unset: the policy's "
            "rollup.recommend.headroomPercent, or 30.",
        ),
    ] = None
    prometheus: Annotated[
        str | None,
        typer.Option(
            "--prometheus",
            metavar="URL",
            help="Prometheus to use instead of the policy's, such as http://localhost:9090.",
        ),
    ] = None
    matcher: Annotated[
        list[str] | None,
        typer.Option(
            "--matcher",
            metavar="LABEL=VALUE",
            help="Use only series with this label, in addition to the policy's metrics.matchers; "
            "may be repeated.",
        ),
    ] = None
    broker_label: Annotated[
        str | None,
        typer.Option(
            "--broker-label",
            metavar="NAME",
            help="Label that names the broker. Unset: the policy's, or broker.",
        ),
    ] = None
    credentials: options.MetricsCredentialsFile = None

    @property
    def is_read(self) -> bool:
        return self.from_usage is not None

    @property
    def seconds(self) -> int:
        """How long before now usage is read."""
        return _seconds(self.from_usage or "")

    @property
    def matchers(self) -> Mapping[str, str]:
        return dict(_matcher(one) for one in self.matcher or ())

    def check(self, *, of_strimzi: bool) -> None:
        """Raise InvalidResource for options that contradict each other."""
        if not self.is_read:
            given = {
                "--headroom-percent": self.headroom_percent,
                "--prometheus": self.prometheus,
                "--matcher": self.matcher or None,
                "--broker-label": self.broker_label,
                "--metrics-credentials-file": self.credentials,
            }
            alone = [name for name, one in given.items() if one is not None]
            if alone:
                raise InvalidResource(
                    f"{', '.join(alone)} says how usage is read, and usage is not asked for; "
                    "nothing was done. Add --from-usage 7d."
                )
        elif of_strimzi:
            raise InvalidResource(
                "--from-usage asks Kafka which clients have no quota, and --strimzi does not ask "
                "Kafka; nothing was done. Run import once with each of them."
            )
        else:
            _ = self.seconds, self.matchers


@dataclass(slots=True)
class Measured(Proposals):
    """The members that usage proposes, and a summary of where their rates come from."""

    summary: str = ""


def _seconds(text: str) -> int:
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise InvalidResource(f"--from-usage {text!r} is not a time. Write it as 12h or 7d.")
    seconds = int(found[1]) * (_DAY if found[2] == "d" else _HOUR)
    if seconds > _MOST_DAYS * _DAY:
        raise InvalidResource(
            f"--from-usage asks for {_MOST_DAYS} days at most, {text} is longer. Write 7d."
        )
    return seconds


def _matcher(text: str) -> tuple[str, str]:
    found = _MATCHER.fullmatch(text)
    if found is None or found[1] == "__name__":
        raise InvalidResource(
            f"--matcher {text!r} cannot be read. Write it as LABEL=VALUE, for example "
            "cluster=orders."
        )
    return found[1], found[2]


# --- whose series are read ------------------------------------------------------------------------


def usage_settings(existing: Existing, asked: UsageOptions) -> MetricsSettings:
    """How to reach Prometheus, and which of its series are this cluster's.

    Raises InvalidResource if nothing says either: a Prometheus may watch several clusters.
    """
    settings = None
    if existing.source is not None:
        settings = metrics_of(existing.source, asked.credentials, url=asked.prometheus)
    if settings is None:
        settings = MetricsSettings(_named_server(existing, asked))
    if asked.broker_label is not None:
        settings = replace(settings, brokers=BrokerLabel(asked.broker_label))
    for label, one in asked.matchers.items():
        declared = settings.matchers.get(label)
        if declared not in (None, one):
            raise InvalidResource(
                f"--matcher {label}={one} contradicts the policy, whose metrics.matchers have "
                f"{label}={declared}: those series are of another cluster. Leave the option out, "
                "or correct the policy."
            )
    settings = replace(settings, matchers={**settings.matchers, **asked.matchers})
    if not _is_selected(settings):
        raise InvalidResource(
            "Nothing says which series are this cluster's: a Prometheus may watch several Kafka "
            "clusters, and clients of another one would get contracts here. Set "
            "spec.metrics.matchers in the policy, or give --matcher LABEL=VALUE with a label that "
            "all of this cluster's series have and no others, for example cluster=orders or, with "
            "one cluster only, the job of its JMX exporters."
        )
    return settings


def _named_server(existing: Existing, asked: UsageOptions) -> PrometheusServer:
    from tidegate.commands.credentials_file import read_credentials_file

    if asked.prometheus is None:
        lack = (
            "No policy was read, because --zookeeper was given without -f"
            if existing.source is None
            else f"Policy {existing.policy_key} has no spec.metrics"
        )
        raise InvalidResource(
            f"{lack}, so it is not known which Prometheus has the usage; nothing was done. Give a "
            "policy with spec.metrics (-f POLICY.yaml), or --prometheus URL and --matcher "
            "LABEL=VALUE."
        )
    if asked.credentials is None:
        return PrometheusServer(asked.prometheus)
    return read_credentials_file(asked.credentials).for_named_prometheus(asked.prometheus)


def _is_selected(settings: MetricsSettings) -> bool:
    """Whether something narrows the series to one cluster: matchers, addresses, own queries."""
    own = (settings.queries.fetch_rate, settings.queries.produce_rate)
    return (
        bool(settings.matchers)
        or isinstance(settings.brokers, BrokerInstances)
        or all(query is not None and "=" in query for query in own)
    )


# --- contracts ------------------------------------------------------------------------------------


def propose_from_usage(
    around: CommandContext,
    existing: Existing,
    asked: UsageOptions,
    match: Sequence[str] | None,
    levels: Sequence[tuple[str, Level]],
    imported: Proposals,
) -> Measured:
    """Members for clients without a quota. Raises what asking Prometheus raises.

    Their names are other ones than those of `imported`.
    """
    settings = usage_settings(existing, asked)
    # a user with a password and no quota is stored as well
    taken = existing.known | {
        one.entity for one in existing.stored.values() if one.values or one.problem is not None
    }
    covering = existing.known | {
        one.entity
        for one in existing.stored.values()
        if BYTE_RATE_KEYS & one.values.keys() and one.entity.client_id is None
    }
    covered: set[Entity] = set()

    def wanted(entity: Entity) -> bool:
        if entity in taken or not matches_any(entity, match):
            return False
        if entity.client_id is not None and Entity(entity.user) in covering:
            covered.add(entity)
            return False
        return True

    with closing(around.open_usage(settings)) as reader:
        reading = reader.read(
            Period.before(around.now_seconds(), asked.seconds),
            wanted=wanted,
            brokers=existing.brokers,
        )
    headroom = asked.headroom_percent
    if headroom is None:
        source = existing.source
        terms = AdviceTerms() if source is None else source.declared.policy.advice
        headroom = terms.headroom_percent
    measured = Measured(names=set(imported.names))
    if existing.unread:
        measured.notes.append(
            "Which brokers live is not known, so series of others would not be noticed: "
            f"{existing.unread}"
        )
    measured.notes += [problem.message for problem in reading.problems]
    measured.notes += _partly_known(reading)
    idle, brief = [], []
    for entity in sorted(reading.seen, key=lambda one: one.sort_key):
        if not _add(entity, reading, measured, levels, headroom_percent=headroom):
            idle.append(entity)
        elif _is_brief(reading.seen[entity]):
            brief.append(entity)
    measured.notes += _notes(idle, sorted(covered, key=lambda one: one.sort_key), brief)
    measured.summary = (
        f"The {len(measured.members)} contracts in tiers usage-* are new limits for clients that "
        f"have none: what 99 % of their five minutes of {_period_words(reading.period)} stayed "
        f"under on one broker, plus {headroom} %. Peaks that did not come in this time are not in "
        "them, and clients that moved nothing have none. Apply them with mode: Observe first."
    )
    return measured


def _add(
    entity: Entity,
    reading: UsageReading,
    measured: Measured,
    levels: Sequence[tuple[str, Level]],
    *,
    headroom_percent: int,
) -> bool:
    """Add the member of one client; False = it moved nothing, so there is none."""
    rates: dict[str, int] = {}
    comments = []
    for way, key in BYTE_RATE_OF.items():
        usage = reading.clients.get((entity, DIRECTION_OF[key]))
        if usage is None or usage.p99 <= 0:
            what = "no rate was seen" if usage is None else "nothing was moved"
            comments.append(f"{way}: {what}, so none is proposed")
            continue
        needed = rounded_up(usage.p99 * (100 + headroom_percent) / 100)
        rates[way] = min(MAX_BYTE_RATE, max(LEAST_BYTES_PER_SECOND, needed))
        comments.append(
            f"{way}: {_usage_words(usage, headroom_percent, least=needed < rates[way])}"
        )
    if not rates:
        return False
    comments.append(_known_words(reading.period, reading.seen[entity]))
    contract = {"perBroker": {way: readable(rate) for way, rate in rates.items()}}
    why = measured.add(entity, contract, rates, levels=levels, comments=tuple(comments))
    if why is not None:
        measured.notes.append(f"{entity} fits no member: {why}. It stays without a quota.")
    return True


def readable(bytes_per_second: int) -> str:
    """The exact rate in the largest unit: 12.4M, 980k; in bytes where three digits are too few."""
    from tidegate.resources.rates import parse_byte_rate

    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if bytes_per_second >= size:
            text = f"{bytes_per_second / size:.2f}".rstrip("0").rstrip(".") + unit
            if parse_byte_rate(text) == bytes_per_second:
                return text
            break
    return quantity(bytes_per_second)


# --- words ----------------------------------------------------------------------------------------

_SHOWN = 5


def _usage_words(usage: ClientUsage, headroom_percent: int, *, least: bool) -> str:
    words = (
        f"99 % of its five minutes stayed under {rate_words(usage.p99)} on broker "
        f"{usage.broker}, the highest was {rate_words(usage.peak)} until "
        f"{rfc3339(usage.peak_at_seconds)}; plus {headroom_percent} %"
    )
    if least:
        words += f", and no less than {rate_words(LEAST_BYTES_PER_SECOND)}"
    if usage.throttled_days:
        words += f"; throttled on {_counted(usage.throttled_days, 'day')}, so it wanted more"
    return words


def _known_words(period: Period, seen: KnownTime) -> str:
    words = (
        f"{_period_words(period)}: seen for {_hours(seen.client_seconds)}; rates of its brokers "
        f"are known for {_hours(seen.known_seconds)} of {_hours(period.seconds)}"
    )
    return f"{words}; seen for less than a day" if _is_brief(seen) else words


def _is_brief(seen: KnownTime) -> bool:
    return seen.client_seconds < _DAY


def _partly_known(reading: UsageReading) -> Iterable[str]:
    """A note for brokers of which rates are known for less than the period."""
    lack = {
        broker: seconds
        for broker, seconds in reading.known_seconds.items()
        if reading.period.seconds - seconds >= _HOUR
    }
    if lack:
        parts = ", ".join(f"broker {broker} {_hours(each)}" for broker, each in lack.items())
        yield (
            f"Rates are not known for all of the {_hours(reading.period.seconds)} asked for: "
            f"{parts}. What clients moved in the rest is unknown, and counts as nothing known "
            "rather than as zero. Prometheus may keep less, or was not there."
        )


def _notes(
    idle: Sequence[Entity], covered: Sequence[Entity], brief: Sequence[Entity]
) -> Iterable[str]:
    if idle:
        yield (
            f"{_counted(len(idle), 'client')} had no traffic in this time, so no need is known and "
            f"no contract is proposed: {_some(idle)}."
        )
    if covered:
        yield (
            f"Left alone, because their users have a quota or are in a tier: {_some(covered)}. A "
            "contract of their own would take them out of their user's."
        )
    if brief:
        yield (
            f"{_counted(len(brief), 'client')} seen for less than a day, so a regular peak may be "
            f"missing: {_some(brief)}."
        )


def _some(entities: Sequence[Entity]) -> str:
    more = f"; and {len(entities) - _SHOWN} more" if len(entities) > _SHOWN else ""
    return "; ".join(map(str, entities[:_SHOWN])) + more


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _period_words(period: Period) -> str:
    return f"{rfc3339(period.start_seconds)} to {rfc3339(period.end_seconds)}"


def _hours(seconds: int) -> str:
    return f"{seconds / _HOUR:.0f} h" if seconds >= _HOUR else f"{seconds // 60} min"
