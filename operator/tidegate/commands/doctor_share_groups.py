"""What `tidegate doctor` finds of share groups: which members they use, and what that costs.

Kafka does not report which users a group's members are. A group that no member can be matched with
is named beside the members that may be its readers, by the topics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

from tidegate.commands.context import CommandContext
from tidegate.commands.findings import Finding, unknown, warning
from tidegate.commands.inputs import PolicySource, metrics_of, opened_cluster
from tidegate.commands.options import AccessOptions
from tidegate.errors import TidegateError
from tidegate_logic.contracts.share_groups import groups_of
from tidegate_logic.model import (
    MAX_BYTE_RATE,
    Direction,
    Entity,
    Member,
    QuotaKey,
    ShareGroup,
    ShareGroupRule,
    StoredQuota,
    Tier,
)
from tidegate_logic.quota_values import enforced_rate
from tidegate_logic.quotas.precedence import same_bucket_fallbacks
from tidegate_logic.reasons import Reason
from tidegate_logic.words import rate_words

_CHECK = "share-groups"
_PAGE = "docs/share-groups.md"
_SHOWN = 5
_NEAR = 0.9  # a client whose rate is this near its quota is throttled now and then
_FETCH = QuotaKey.CONSUMER_BYTE_RATE

Named = tuple[Tier, Member]


def examine_share_groups(
    around: CommandContext,
    source: PolicySource,
    access: AccessOptions,
    metrics_credentials: Path | None,
    brokers: frozenset[int],
) -> Iterator[Finding]:
    """Findings about each share group that has members; none where there are no share groups."""
    if not brokers:
        return
    try:
        with opened_cluster(around, source, access) as cluster:
            groups = cluster.share_groups.read() if cluster.share_groups is not None else ()
            quotas = cluster.store.read(_asked(source.declared.entities)) if groups else {}
    except TidegateError as error:
        yield unknown(_CHECK, f"Not examined: {error.for_command}")
        return
    if not groups:
        return
    named = [(tier, member) for tier in source.declared.tiers or () for member in tier.members]
    rates = _measured(around, source, metrics_credentials, brokers)
    matched: set[str] = set()
    for tier, member in named:
        mine = groups_of(member, groups)
        matched |= {group.name for group in mine}
        if mine:
            yield from _of_member((tier, member), mine, quotas, rates.get(member.entity))
    for group in groups:
        if group.name not in matched:
            yield from _unmatched(group, named)


def _measured(
    around: CommandContext,
    source: PolicySource,
    credentials: Path | None,
    brokers: frozenset[int],
) -> Mapping[Entity, tuple[float, float]]:
    """What each entity fetches in bytes/s: on all brokers, and on the one where it is most."""
    try:
        settings = metrics_of(source, credentials)
        if settings is None:
            return {}
        with closing(around.open_reader(settings)) as reader:
            clients = reader.read(brokers).clients
    except TidegateError:  # a finding about metrics says so
        return {}
    found: dict[Entity, tuple[float, float]] = {}
    for (entity, _, direction), rate in clients.items():
        if direction is Direction.EGRESS:
            total, most = found.get(entity, (0.0, 0.0))
            found[entity] = total + rate.bytes_per_second, max(most, rate.bytes_per_second)
    return found


def _of_member(
    named: Named,
    groups: Iterable[ShareGroup],
    quotas: Mapping[Entity, StoredQuota],
    measured: tuple[float, float] | None,
) -> Iterator[Finding]:
    tier, member = named
    who = f"{tier.key} / {member.name} ({member.entity})"
    what = f"{_names(groups)} with {who}"
    if member.share_groups is ShareGroupRule.THROTTLE:
        yield warning(
            _CHECK,
            Reason.SHARE_GROUP,
            f"{what}, which accepts to be throttled (shareGroups: Throttle).",
            "Throttled rounds use up delivery attempts, and records may be archived that no "
            "consumer was given.",
            f"Raise the group's share.delivery.count.limit, or set shareGroups: Protect ({_PAGE}).",
        )
        return
    reads = "What it reads" if measured is None else f"Its {rate_words(measured[0])}"
    yield warning(
        _CHECK,
        Reason.SHARE_GROUP,
        f"{what}, so Tidegate sets no fetch quota for it.",
        f"{reads} cannot be throttled: while a broker is over its egress limit, other members are "
        "throttled more.",
        f"No action needed; shareGroups: Throttle on the member accepts the risk ({_PAGE}).",
    )
    whose, quota = _standing(quotas, member.entity)
    if quota is not None and (measured is None or measured[1] >= _NEAR * quota):
        now = "" if measured is None else f", and it reads {rate_words(measured[1])} on one broker"
        yield warning(
            _CHECK,
            Reason.SHARE_GROUP,
            f"{who} has the fetch quota of {whose}, {rate_words(quota)}{now}.",
            "Kafka throttles the share group by it, which may cost records.",
            f"Remove that quota, or raise it above what the group reads ({_PAGE}).",
        )


def _asked(entities: Iterable[Entity]) -> set[Entity]:
    """These, and the default entities that count where they have no quota."""
    return {one for entity in entities for one in (entity, *same_bucket_fallbacks(entity))}


def _standing(quotas: Mapping[Entity, StoredQuota], entity: Entity) -> tuple[Entity, int | None]:
    """Whose fetch quota counts for the entity, in bytes/s, once Tidegate has none for it.

    None = none, or none that limits.
    """
    for one in (entity, *same_bucket_fallbacks(entity)):
        stored = quotas.get(one)
        is_ours = stored is not None and stored.ledger and _FETCH in stored.ledger.entries
        if stored is not None and _FETCH in stored.values and not (is_ours and one == entity):
            rate = enforced_rate(stored.values[_FETCH])
            return one, rate if rate is not None and rate < MAX_BYTE_RATE else None
    return entity, None


def _unmatched(group: ShareGroup, named: Iterable[Named]) -> Iterator[Finding]:
    """A group whose readers may be members by user, as far as their topics say."""
    may_be = [
        f"{tier.key} / {member.name}"
        for tier, member in named
        if member.entity.client_id is None
        and not member.share_group_names
        and _reads_any(member, group.topics)
    ]
    if not may_be:
        return
    more = f" and {len(may_be) - _SHOWN} more" if len(may_be) > _SHOWN else ""
    clients = ", ".join(sorted(group.client_ids)[:_SHOWN]) or "unknown"
    yield warning(
        _CHECK,
        Reason.SHARE_GROUP,
        f"Share group {group.name} (client ids: {clients}) cannot be matched with a member: Kafka "
        "does not report a group's users.",
        f"If it reads with {', '.join(may_be[:_SHOWN])}{more}, that fetch quota may cost it "
        "records.",
        f"Name the group in shareGroupNames of the member that it uses ({_PAGE}).",
    )


def _reads_any(member: Member, topics: Iterable[str]) -> bool:
    """Whether the member may read one of these topics; without topics of its own, any."""
    prefixes = tuple(topic[:-1] for topic in member.topics if topic.endswith("*"))
    return not member.topics or any(
        topic in member.topics or (prefixes and topic.startswith(prefixes)) for topic in topics
    )


def _names(groups: Iterable[ShareGroup]) -> str:
    names = [group.name for group in groups]
    return (
        f"Share group {names[0]} reads"
        if len(names) == 1
        else f"Share groups {', '.join(names[:_SHOWN])} read"
    )
