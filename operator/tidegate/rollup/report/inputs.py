"""The parts of a report request that come from a store of usage tables and from a policy."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa

from controller_logic.contracts.recommend import AdviceBasis, advise
from controller_logic.model import Advice, Policy, RateForm, Topology, Usage
from tidegate.rollup.report.request import ClientKey, MemberTerms, Provenance, RecommendedContract, UsageTables
from tidegate.rollup.schemas import HOUR_MS, TABLES, Direction
from tidegate.rollup.tables.format import VERSION
from tidegate.rollup.tables.store import UsageStore
from tidegate.rollup.terms.sources import KEYS, PolicyMember, PolicyTerms

MOST_ROWS = 20_000_000  # of five minutes: about 2 GB while they are ranked

_USAGE_5M = ("window_start", "broker", "user", "client_id", "direction", "bytes", "samples", "coverage", "calibration")
_DIRECTIONS: Final[Mapping[str, Direction]] = {key.value: direction for direction, key in KEYS.items()}
_FORMS: Final = {RateForm.PER_BROKER: "on each broker", RateForm.TOTAL: "of all brokers", RateForm.PER_PARTITION: "a partition"}


def stored_tables(store: UsageStore, start_ms: int, end_ms: int, *, grain_ms: int) -> UsageTables:
    """Tables of hours or days, and the 5-minute ones unless they have more rows than fit into memory.

    Raises what reading the store raises.
    """
    suffix = "1h" if grain_ms == HOUR_MS else "1d"
    usage, brokers, tiers = (_rows(store, f"{name}_{suffix}", start_ms, end_ms) for name in ("usage", "broker", "tier"))
    rows_5m = sum(file.rows for part in store.parts("usage_5m", start_ms, end_ms) for file in part.files)
    return UsageTables(
        grain_ms=grain_ms,
        usage=usage,
        brokers=brokers,
        tiers=tiers,
        usage_5m=store.rows("usage_5m", start_ms, end_ms, columns=_USAGE_5M) if rows_5m <= MOST_ROWS else None,
        broker_5m=store.rows("broker_5m", start_ms, end_ms),
        published=len(store.windows(f"usage_{suffix}", start_ms, end_ms)),
    )


def _rows(store: UsageStore, table: str, start_ms: int, end_ms: int) -> pa.Table:
    """All columns but the sketches, which are most of a table's bytes."""
    return store.rows(table, start_ms, end_ms, columns=[name for name in TABLES[table].schema.names if name != "sketch"])


def stored_provenance(store: UsageStore, start_ms: int, end_ms: int) -> Provenance:
    """The runs that published the period's usage, and how they read their samples. Compacted files count too."""
    tables = ("usage_5m", "usage_1h", "usage_1d")
    manifests = [one for table in tables for one in store.manifests(table, start_ms, end_ms) if not one.retired]
    return Provenance(
        store_url=store.storage.shown,
        schema_version=VERSION,
        transports=sorted({one.source for one in manifests if one.source}),
        run_ids=sorted({one.run_id for one in manifests}),
    )


def member_terms(terms: PolicyTerms, *, brokers: int) -> Sequence[MemberTerms]:
    """Every member of the policy. A contract whose rate on each broker depends on leaders is left out: they are unknown here."""
    return [
        MemberTerms(
            client=_client(one),
            name=one.member.name,
            level=one.tier.level.value,
            contracts={direction: round(rate) for direction, rate in terms.promised(one, brokers=brokers).items()},
        )
        for one in terms.members
    ]


def recommendations(policy: Policy, terms: PolicyTerms, usage: Usage, brokers: Collection[int]) -> Sequence[RecommendedContract]:
    """One for each byte rate of each contract, by the operator's own rule on the usage of the report's period.

    They may differ from a tier's status, which is about other days. A rate for each partition gets none, and a reason,
    because leaders are unknown here.
    """
    topology = Topology(usage.until_seconds, frozenset(brokers), {})
    advised = advise(AdviceBasis(usage, tuple(terms.tiers), policy.advice, policy.limits, topology))
    return [each for one in terms.members for each in _recommended(one, advised.advice.get((one.tier.key, one.member.name), ()), usage)]


def _recommended(one: PolicyMember, advice: Sequence[Advice], usage: Usage) -> Iterator[RecommendedContract]:
    form = _FORMS[one.member.contract.form] if one.member.contract is not None else ""
    for each in advice:
        figures = usage.figures.get((one.member.entity, each.key))
        yield RecommendedContract(
            client=_client(one),
            direction=_DIRECTIONS[each.key.value],
            contract=each.declared,
            recommended=each.recommended,
            reason=each.reason.value,
            message=each.message,
            form=form,
            applied=each.applied,
            p99_rate=None if figures is None else figures.p99_busiest,
        )


def _client(one: PolicyMember) -> ClientKey:
    return ClientKey(one.tier.key, *one.client)
