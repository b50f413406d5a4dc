"""A whole run: ingest and publish hours, then the hourly and daily tables that are made of them.

Each window is published by itself, the finer table first, so a run that is killed leaves whole
windows, and one that is repeated leaves the same ones. Days are made when they are over, and again
when one of their hours is published again.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from itertools import count

from pyspark.sql import DataFrame

from tidegate.errors import NotFound, TidegateError
from tidegate.rollup.entities import SpecChanges, read_entities, tiers_of, write_entities
from tidegate.rollup.fold.hours import Places
from tidegate.rollup.ingest import IngestOrder, Source, WorkItem, read_source
from tidegate.rollup.labels import labels_text
from tidegate.rollup.samples import Count, Progress, Step, Transport, unwatched
from tidegate.rollup.schemas import DAY_MS, HOUR_MS, TABLES
from tidegate.rollup.spark.session import Spark
from tidegate.rollup.spark.stages import (
    frame_of,
    ingest_all,
    stage_days,
    stage_frame,
    state_sums,
    tier_sums,
    tiers_by_hour,
    write_all,
)
from tidegate.rollup.tables import iceberg
from tidegate.rollup.tables.format import Manifest
from tidegate.rollup.tables.iceberg import CatalogSettings
from tidegate.rollup.tables.publication import (
    Publication,
    StagedFile,
    Written,
    discard_staging,
    name_files,
)
from tidegate.rollup.tables.store import UsageStore, is_current, stamps
from tidegate.rollup.tables.upkeep import Retention, keep_up
from tidegate.rollup.tables.verify import RULES, WORTH_TELLING
from tidegate.rollup.terms.reader import StretchTerms, TermsReader, TierStates
from tidegate.rollup.terms.sources import AuditLine, PolicyMember, PolicyTerms, read_trail
from tidegate_logic.reasons import Reason

# Hours take tiers as they were at the end of the hour (`entities`). Days take all but the sums of
# bytes from their hours: a member that changed tiers at noon is in both, a day's states are its
# hours' states.


_MEMBERS = "hour timestamp, user string, client_id string, tier string, labels string"
_STATES = (
    "window_start timestamp, tier string, direction string, throttle_episodes int, "
    "seconds_contract double, seconds_stepping double, seconds_throttled double, "
    "seconds_relaxing double"
)
Stage = Callable[[], list[StagedFile]]


@dataclass(frozen=True, slots=True)
class Coarser:
    """`members` and `states` are by the start of each hour of the run."""

    spark: Spark
    order: IngestOrder
    members: Mapping[int, Sequence[PolicyMember]]
    states: Mapping[int, Sequence[TierStates]]

    def tables(self, starts: range) -> Iterator[tuple[str, Stage | None]]:
        """The windows' tables, each with what stages its rows once those before are published.

        None = there are no rows, which Spark need not find out.
        """
        if starts.step == HOUR_MS:
            yield "tier_1h", partial(self._tiers, starts) if self._has_tiers(starts) else None
            return
        for table in ("usage_1d", "broker_1d"):
            yield table, partial(stage_days, self.spark.context, self.order, table, starts)
        yield "tier_1d", partial(self._tiers, starts) if self._hours_have_tiers(starts) else None

    def _tiers(self, starts: range) -> list[StagedFile]:
        span_ms, is_hours, order = starts.step, starts.step == HOUR_MS, self.order

        def finer(table: str) -> DataFrame:
            return frame_of(
                self.spark.session, order.store_url, table, starts[0], starts[-1] + span_ms
            )

        tiers = self._members(starts) if is_hours else tiers_by_hour(finer("usage_1h"))
        states = (
            self._states(starts) if is_hours else state_sums(finer("tier_1h"), window_ms=span_ms)
        )
        rows = tier_sums(finer("usage_5m"), tiers, states, window_ms=span_ms)
        return stage_frame(
            rows,
            order.store_url,
            order.run_id,
            "tier_1h" if is_hours else "tier_1d",
            owner=order.owner,
        )

    def _has_tiers(self, hours: range) -> bool:
        return any(self.members.get(at) or self.states.get(at) for at in hours)

    def _hours_have_tiers(self, days: range) -> bool:
        """False where every hour is known to have had no member of any tier."""
        store = UsageStore.at(self.order.store_url)
        usage, tiers = (
            {
                one.window: one.contents.rows
                for one in filter(is_current, store.manifests(table, days[0], days[-1] + DAY_MS))
            }
            for table in ("usage_1h", "tier_1h")
        )
        return any(tiers.values()) or not usage.keys() <= tiers.keys()

    def _members(self, hours: range) -> DataFrame:
        """Without the hour where members are the same throughout, as nearly always."""
        members = [
            [
                (*one.client, one.tier.key, labels_text(one.member.labels))
                for one in self.members.get(at, ())
            ]
            for at in hours
        ]
        if all(each == members[0] for each in members):
            return self.spark.session.createDataFrame(members[0], _MEMBERS.partition(", ")[2])
        rows = [
            (datetime.fromtimestamp(at / 1000, UTC), *one)
            for at, each in zip(hours, members, strict=True)
            for one in each
        ]
        return self.spark.session.createDataFrame(rows, _MEMBERS)

    def _states(self, starts: range) -> DataFrame:
        rows = [
            (datetime.fromtimestamp(at / 1000, UTC), *astuple(one))
            for at in starts
            for one in self.states.get(at, ())
        ]
        return self.spark.session.createDataFrame(rows, _STATES)


def unattributed_words(brokers: Iterable[Manifest]) -> str:
    """A sentence where some of what brokers counted is unattributed, "" otherwise."""
    sums = [one.contents.sums for one in brokers]
    total, rest = (
        sum(each.get(name, 0) for each in sums) for name in ("client_bytes", "unattributed_bytes")
    )
    if rest <= WORTH_TELLING * total:
        return ""
    return (
        f"{rest / total:.1%} of the clients' bytes are unattributed: no quota meters the clients "
        f"that moved them, or their gauges are missing. They are charged to no one. A default "
        f"quota with metering (spec.defaults.metering) gives every client a gauge."
    )


_FINE = ("usage_5m", "broker_5m")
_HOURS_OF_TASKS = {"usage_1h": "usage_5m", "broker_1h": "broker_5m"}
_OF_TASKS = (*_FINE, *_HOURS_OF_TASKS)
_WINDOWS_AT_ONCE = 24


def _nobody(_: str) -> None:
    """Nobody wants to know."""


@dataclass(frozen=True, slots=True)
class RollupRun:
    """What to do: from a whole hour on as far as `end_ms`, which is on an edge of five minutes.

    An hour that is not over by then is published as far as it is, and again by a later run. Without
    `policy` nothing is known of tiers, contracts and limits; without `retention` nothing is let go.
    `trail` are lines of the audit trail, for who has none of the operator's metrics. `tell` gets a
    sentence for each step, for logs; `progress` counts within them; `catalog_problem` gets why the
    `catalog` is behind the tables. `tasks_at_once` read from Prometheus; None = every core does.
    """

    order: IngestOrder
    start_ms: int
    end_ms: int
    policy: PolicyTerms | None = None
    retention: Retention | None = None
    trail: Sequence[AuditLine] = field(default=(), repr=False)
    catalog: CatalogSettings | None = None
    tasks_at_once: int | None = None
    clock_ms: Callable[[], int] = field(kw_only=True)
    tell: Callable[[str], None] = field(kw_only=True)
    progress: Progress = field(default=unwatched, kw_only=True)
    catalog_problem: Callable[[str], None] = field(default=_nobody, kw_only=True)

    @property
    def hours(self) -> range:
        """The hours that it touches."""
        return range(self.start_ms, self.end_ms, HOUR_MS)

    @property
    def days(self) -> range:
        """The days that it touches and that are over: a gap filled later changes its day too."""
        return range(
            self.start_ms - self.start_ms % DAY_MS,
            min(self.end_ms, self.clock_ms() - DAY_MS + 1),
            DAY_MS,
        )


def run_rollup(spark: Spark, run: RollupRun, transport: Transport) -> list[Manifest]:
    """Carry it out; what was published, in that order.

    Raises tidegate.errors; a repeated run goes on.
    """
    store = UsageStore.at(run.order.store_url)
    store.require_writable(run.order.owner)
    published = _Rollup(spark, run, store, (run.hours, run.days)).publish_all(transport)
    discard_staging(store, run.order.run_id)
    if run.retention is None:
        _update_catalog(run, store)
    else:
        done = keep_up(
            store,
            run.retention,
            run_id=run.order.run_id,
            now_ms=run.clock_ms(),
            before_sweep=lambda: _update_catalog(run, store),
        )
        run.tell(f"upkeep: {done.days} days put together, {done.retired} windows out of retention")
    return published


def _update_catalog(run: RollupRun, store: UsageStore) -> bool:
    """Bring the catalog up to the tables, where there is one; False = it could not be.

    What is published counts all the same: an unreachable catalog is reported and fails no run.
    """
    if run.catalog is None:
        return True
    try:
        changed = iceberg.update(store, run.catalog, now_ms=run.clock_ms())
    except TidegateError as error:
        run.catalog_problem(error.message)
        return False
    run.tell(f"catalog: {len(changed)} tables have a new snapshot")
    return True


@dataclass(frozen=True)
class _Rollup:
    """One run on one store; `spans` are its hours and days.

    A day that ends meanwhile is left to the next run.
    """

    spark: Spark
    run: RollupRun
    store: UsageStore
    spans: tuple[range, range]

    @cached_property
    def windows(self) -> Count:
        """At first as many as there can be."""
        most = sum(
            len(starts)
            for starts in self.spans
            for kind in TABLES.values()
            if kind.published_ms == starts.step
        )
        return Count(self.run.progress, Step.PUBLISHED, most)

    def publish_all(self, transport: Transport) -> list[Manifest]:
        source = self._source(transport)
        members = self._members()
        terms = self._terms(transport, source.brokers, members)
        published = self._ingested(source, terms, members)
        states = {start_ms: one.tiers for start_ms, one in terms.items()}
        coarser = Coarser(self.spark, self.run.order, members, states)
        for starts in self.spans:
            for first in range(0, len(starts), _WINDOWS_AT_ONCE):
                published += self._summed(coarser, starts[first : first + _WINDOWS_AT_ONCE])
        return published

    def _source(self, transport: Transport) -> Source:
        """Samples are counted before they are read: what comes meanwhile then shows as later."""
        run = self.run
        source = read_source(transport, run.order.metrics, run.start_ms, run.end_ms)
        brokers = len(source.brokers)
        run.tell(
            f"reading {len(run.hours) * brokers} hours of {brokers} brokers by "
            f"{run.order.transport}"
        )
        if not brokers:
            problem = (
                "Prometheus has no samples of any broker for these hours, so nothing was "
                "published; what is already published stays as it is."
            )
            raise NotFound(
                Reason.METRICS_MISSING,
                f"{problem} Is the preset right, and does it keep samples for so long?",
            )
        return source

    def _members(self) -> Mapping[int, Sequence[PolicyMember]]:
        """The members of each hour, once what changed since the last run is written down."""
        run = self.run
        if run.policy is None:
            return {}
        now, known = run.policy.members, read_entities(self.store)
        if not run.policy.budgets_known:
            now = known.in_known_budgets(now)
        trail = read_trail(run.trail, run.policy.key, end_ms=run.clock_ms())
        changes = SpecChanges(run.policy.changed_ms, self._looked_ms())
        entities = known.seen(now, run.clock_ms(), trail, changes)
        if entities != known:
            write_entities(self.store, entities, run.order.owner)
        members = {at: entities.at_end_of(self._end(at), now) for at in run.hours}
        own, each_hour = tiers_of(now), map(tiers_of, members.values())
        others = sum(tiers != own for tiers in each_hour)
        if others:
            run.tell(f"{others} of {len(members)} hours had other members in tiers than now")
        return members

    def _looked_ms(self) -> int:
        """When a run published last: it had looked at the members before."""
        return max((file.modified_ms for _, file in self.store.listed(_FINE[0])), default=0)

    def _terms(
        self,
        transport: Transport,
        brokers: Sequence[int],
        members: Mapping[int, Sequence[PolicyMember]],
    ) -> Mapping[int, StretchTerms]:
        reader = TermsReader(transport, self.run.order.metrics, self.run.policy, self.run.trail)
        terms = {
            start_ms: reader.of(start_ms, self._end(start_ms), brokers, members.get(start_ms))
            for start_ms in self.run.hours
        }
        for words in dict.fromkeys(one.words for one in terms.values()):
            self.run.tell(
                f"{words} for {sum(one.words == words for one in terms.values())} of "
                f"{len(terms)} hours"
            )
        return terms

    def _ingested(
        self,
        source: Source,
        terms: Mapping[int, StretchTerms],
        members: Mapping[int, Sequence[PolicyMember]],
    ) -> list[Manifest]:
        run, parts = self.run, count()
        items = [
            WorkItem(broker, start_ms, self._end(start_ms), part=next(parts))
            for start_ms in run.hours
            for broker in source.brokers
        ]
        promised = {start_ms: one.brokers for start_ms, one in terms.items()}
        staged = ingest_all(
            self.spark.context,
            run.order,
            items,
            run.progress,
            terms=promised,
            places=self._places(members),
            at_once=run.tasks_at_once,
        )
        known = sorted({file.window_start_ms for file in staged if file.table == "broker_5m"})
        left = len(run.hours) - len(known)
        self.windows.left_out(left * len(_OF_TASKS))
        if left:
            run.tell(f"{left} hours for which Prometheus has no samples are left as they are")
        sources = {
            start_ms: f"{run.order.transport}; {terms[start_ms].words}" for start_ms in known
        }
        fine = [
            replace(
                self._publication(staged, table, start_ms),
                source=sources[start_ms],
                source_samples=source.samples.get(start_ms, 0),
            )
            for start_ms in known
            for table in _FINE
        ]
        hourly = [
            self._publication(staged, table, start_ms)
            for start_ms in known
            for table in _HOURS_OF_TASKS
        ]
        written = write_all(self.spark.context, run.order.store_url, [*fine, *hourly])
        published = [self._named(each, files) for each, files in zip(fine, written, strict=False)]
        for each, files in zip(hourly, written[len(fine) :], strict=True):
            at_ms, finer = each.window_start_ms, _HOURS_OF_TASKS[each.table]
            made_from = stamps(self.store, [finer], at_ms, at_ms + HOUR_MS)
            published.append(self._named(replace(each, made_from=made_from), files))
        words = unattributed_words(one for one in published if one.table == "broker_5m")
        if words:
            run.tell(words)
        return published

    def _summed(self, coarser: Coarser, starts: range) -> list[Manifest]:
        """Publish windows from one pass over their finer rows: it costs mostly its start.

        A window is left out if nothing finer is published: whether there was usage is unknown then.
        """
        published: list[Manifest] = []
        for table, stage in coarser.tables(starts):
            finer = sorted({rule.finer for rule in RULES if rule.coarser == table})
            sources = {
                start_ms: stamps(self.store, finer, start_ms, start_ms + starts.step)
                for start_ms in starts
            }
            known = [start_ms for start_ms in starts if sources[start_ms]]
            self.windows.left_out(len(starts) - len(known))
            if known:
                staged: list[StagedFile] = []
                if stage is not None:
                    self.run.tell(f"adding up {table}")
                    staged = stage()
                wanted = [
                    replace(self._publication(staged, table, at), made_from=sources[at])
                    for at in known
                ]
                written = write_all(self.spark.context, self.run.order.store_url, wanted)
                published += [
                    self._named(each, files) for each, files in zip(wanted, written, strict=True)
                ]
        return published

    def _publication(self, staged: Sequence[StagedFile], table: str, start_ms: int) -> Publication:
        own = [file for file in staged if (file.table, file.window_start_ms) == (table, start_ms)]
        order = self.run.order
        return Publication(
            table=table,
            window_start_ms=start_ms,
            run_id=order.run_id,
            staged=own,
            owner=order.owner,
        )

    def _named(self, publication: Publication, written: Sequence[Written]) -> Manifest:
        manifest = name_files(self.store, publication, written, now_ms=self.run.clock_ms())
        self.windows.done()
        return manifest

    def _places(self, members: Mapping[int, Sequence[PolicyMember]]) -> Mapping[int, Places]:
        """Tier and labels of each client, by hour."""
        return {
            at: {one.client: (one.tier.key, labels_text(one.member.labels)) for one in each}
            for at, each in members.items()
        }

    def _end(self, start_ms: int) -> int:
        return min(start_ms + HOUR_MS, self.run.end_ms)
