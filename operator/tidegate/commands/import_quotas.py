"""`tidegate import`: the quotas that a cluster has already, as BusinessTiers to look over.

They come from Kafka, or with --strimzi from the KafkaUsers that declare them. Every contract is the
quota as it stands, for each broker, so that taking them over changes no quota. A level is a
proposal: nothing says how important a client is. Clients without a quota are `import_usage`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidegate.commands import options
from tidegate.commands.context import CommandContext
from tidegate.commands.import_tiers import (
    Proposals,
    level_rule,
    matches_any,
    quantity,
    text_of,
    tiers_of,
)
from tidegate.commands.import_usage import Existing, UsageOptions, propose_from_usage
from tidegate.commands.inputs import (
    DEFAULT_NAMESPACE,
    PolicySource,
    find_policy,
    opened_cluster,
    opened_store,
)
from tidegate.commands.options import CommandOptions
from tidegate.commands.output import Page
from tidegate.errors import InvalidResource, NotFound, TidegateError
from tidegate_logic.model import BYTE_RATE_OF, Entity, Level, QuotaKey, StoredQuota
from tidegate_logic.quota_values import enforced_rate, number_of
from tidegate_logic.quotas.strimzi import IGNORED_USERS, PAUSED
from tidegate_logic.reasons import Reason

if TYPE_CHECKING:
    from tidegate.observe.strimzi import StrimziPlace


@options.command
def import_quotas(
    around: CommandContext,
    *,
    asked: CommandOptions,
    match: Annotated[
        list[str] | None,
        typer.Option(
            "--match",
            metavar="PATTERN",
            help="Include only matching users and client ids, such as 'orders-*'; may be repeated.",
        ),
    ] = None,
    level_of: Annotated[
        list[str] | None,
        typer.Option(
            "--level-of",
            metavar="PATTERN=LEVEL",
            help="Level of matching users and client ids, such as 'checkout*=L0'; may be repeated, "
            "and the first match counts.",
        ),
    ] = None,
    throttled_percent: Annotated[
        int,
        typer.Option(
            "--throttled-percent",
            min=1,
            max=100,
            help="Highest throttled rate of L1 to L3, in percent of the smallest contract in the "
            "tier.",
        ),
    ] = 20,
    strimzi: Annotated[
        bool,
        typer.Option(
            "--strimzi",
            help="Read quotas from the KafkaUsers of the policy's Strimzi cluster instead of from "
            "Kafka.",
        ),
    ] = False,
    strimzi_cluster: Annotated[
        str | None,
        typer.Option(
            "--strimzi-cluster",
            metavar="[NAMESPACE/]NAME",
            help="The same for this Strimzi Kafka object; no policy is needed then.",
        ),
    ] = None,
    usage: UsageOptions,
) -> None:
    """Generate BusinessTiers from existing quotas.

    Prints manifests to review and apply. Nothing is written, neither to Kafka nor to Kubernetes.

    Each contract is the quota in force on each broker, so applying the tiers changes no quota.
    Members with similar rates share a tier, because all members of a tier drop to the same rates.
    Levels are proposals by name: work that can wait is L3, the rest L2. With --zookeeper alone,
    neither a policy nor Kubernetes is needed; POLICY and --namespace are then only written into the
    manifests. Members of the policy's existing tiers are left out.

    With --strimzi, the quotas are those that KafkaUsers declare. Strimzi keeps managing them until
    they are removed from the KafkaUsers, which takes more steps: see docs/strimzi.md.

    With --from-usage, clients without a quota get tiers too. The contract of each direction is the
    99th percentile of the client's five-minute rates on its busiest broker, counting only times
    with traffic, plus headroom, rounded up. Comments say which peak and time range it comes from,
    and how much of that time is known. Applying these tiers does limit clients.
    """
    of_strimzi = strimzi or strimzi_cluster is not None
    usage.check(of_strimzi=of_strimzi)
    levels = [level_rule(text) for text in level_of or ()]
    existing = (
        _declared(around, asked, strimzi_cluster)
        if of_strimzi
        else _stored(around, asked, with_brokers=usage.is_read)
    )
    policy_key, stored, known = existing.policy_key, existing.stored, existing.known
    found = propose(
        (
            one
            for one in stored.values()
            if one.entity not in known and matches_any(one.entity, match)
        ),
        levels,
    )
    measured = (
        propose_from_usage(around, existing, usage, match, levels, found) if usage.is_read else None
    )
    tiers = tiers_of(
        found.members, policy_key, throttled_percent=throttled_percent, prefix="imported"
    )
    if measured is not None:
        tiers += tiers_of(
            measured.members, policy_key, throttled_percent=throttled_percent, prefix="usage"
        )
    around.out.write(text_of(tiers))
    page = Page(around.err)
    for note in (*found.notes, *(measured.notes if measured is not None else ())):
        page.warn(note)
    by_usage = (
        "" if measured is None else f", {len(measured.members)} of them by usage and without quota"
    )
    members = len(found.members) + (0 if measured is None else len(measured.members))
    page.say(
        f"{members} users and clients in {len(tiers)} BusinessTiers for policy "
        f"{policy_key}{by_usage}; {len(found.notes)} left out; {len(known & stored.keys())} are "
        "already in tiers. Nothing was written."
    )
    if tiers:
        page.say(
            "Check the levels and throttledRates, then preview the changes: tidegate plan -f "
            "POLICY.yaml -f TIERS.yaml --all"
        )
    if measured is not None and measured.members:
        page.say(measured.summary)
    if tiers and of_strimzi:
        page.say(_HAND_OVER)


_HAND_OVER = (
    "A member stays OwnedByStrimzi while its KafkaUser declares quotas. Without spec.quotas the "
    f"User Operator removes its quotas every two minutes, whatever {IGNORED_USERS} says, until the "
    f"KafkaUser has the annotation {PAUSED}=true. docs/strimzi.md has the other ways."
)


def _declared(around: CommandContext, asked: CommandOptions, cluster: str | None) -> Existing:
    """What KafkaUsers of the policy's Strimzi cluster declare.

    `cluster` is the Strimzi cluster, and no policy is looked for then.
    """
    from tidegate.observe.strimzi import (
        CLUSTER_LABEL,
        StrimziPlace,
        declared_quotas,
        list_kafka_users,
        read_kafka_user,
    )

    named, known = asked.policy, frozenset[Entity]()
    if cluster is not None:
        namespace, _, name = cluster.rpartition("/")
        place = StrimziPlace(namespace or named.namespace or DEFAULT_NAMESPACE, name)
        kubernetes = around.open_kubernetes(named.kubeconfig, named.context, named.as_user)
        key = _unread_policy_key(asked)
    else:
        source = find_policy(around, named)
        key, known = source.declared.policy.key, frozenset(source.declared.entities)
        kubernetes = source.kubernetes or around.open_kubernetes(
            named.kubeconfig, named.context, named.as_user
        )
        place = _place_of(source)
    listed = list_kafka_users(kubernetes, place)
    if not listed:
        raise NotFound(
            Reason.KAFKA_USERS_UNREAD,
            f"Strimzi's cluster {place} has no KafkaUser: none in namespace {place.namespace} has "
            f"the label {CLUSTER_LABEL}={place.cluster}. Name another with --strimzi-cluster.",
        )
    users = [(Entity(read_kafka_user(raw).kafka_name), declared_quotas(raw)) for raw in listed]
    return Existing(
        key, {user: StoredQuota(user, quotas) for user, quotas in users if quotas}, known
    )


def _place_of(source: PolicySource) -> StrimziPlace:
    from tidegate.observe.strimzi import strimzi_place

    key = source.declared.policy.key
    place = strimzi_place(source.kafka, key.partition("/")[0])
    if place is None:
        raise InvalidResource(
            f"Policy {key} names no Strimzi cluster, and its bootstrapServers are not of the form "
            "CLUSTER-kafka-bootstrap.NAMESPACE.svc. Set spec.kafka.strimzi, or give "
            "--strimzi-cluster NAMESPACE/NAME."
        )
    return place


def _unread_policy_key(asked: CommandOptions) -> str:
    """The key of a policy that is only written down."""
    namespace, _, name = (asked.policy.name or "kafka").rpartition("/")
    return f"{namespace or asked.policy.namespace or DEFAULT_NAMESPACE}/{name}"


def _stored(around: CommandContext, asked: CommandOptions, *, with_brokers: bool) -> Existing:
    """Everything in the quota store, and with `with_brokers` which brokers there are."""
    if asked.access.zookeeper is not None and not asked.policy.file:
        with opened_store(around, asked.access) as store:
            stored = store.read_everything()
        return Existing(_unread_policy_key(asked), stored)
    source = find_policy(around, asked.policy)
    brokers: frozenset[int] | None = None
    unread = ""
    with opened_cluster(around, source, asked.access) as cluster:
        stored = cluster.store.read_everything()
        if with_brokers:
            try:
                brokers = cluster.topology.read(()).brokers
            except TidegateError as error:
                unread = error.for_command
    known = frozenset(source.declared.entities)
    return Existing(source.declared.policy.key, stored, known, source, brokers, unread)


_OTHERS = {
    "requestPercentage": QuotaKey.REQUEST_PERCENTAGE,
    "controllerMutationsPerSecond": QuotaKey.CONTROLLER_MUTATION_RATE,
}


def propose(
    stored: Iterable[StoredQuota],
    levels: Sequence[tuple[str, Level]],
) -> Proposals:
    """Members for these quotas, by name; the first of `levels` that fits an entity is its own."""
    found = Proposals()
    for one in sorted(stored, key=lambda each: each.entity.sort_key):
        if one.problem is not None:
            found.notes.append(f"{one.entity}: {one.problem}")
        elif one.values:
            _propose(one, levels, found)
    return found


def _is_default_alone(entity: Entity) -> bool:
    """Whether every part is Kafka's default, as spec.defaults has them."""
    return not any(isinstance(part, str) for part in (entity.user, entity.client_id))


def _propose(one: StoredQuota, levels: Sequence[tuple[str, Level]], found: Proposals) -> None:
    entity = one.entity
    if not all(part is None or isinstance(part, str) for part in (entity.user, entity.client_id)):
        found.notes.append(
            f"{entity} is one of Kafka's default entities, which no tier can have. Declare it in "
            f"spec.defaults of the policy: {_said(one)}"
            if _is_default_alone(entity)
            else f"{entity} is a default for a part of the clients, which neither a tier nor "
            f"spec.defaults can declare. It stays as it is: {_said(one)}"
        )
        return
    rates = {
        way: rate
        for way, key in BYTE_RATE_OF.items()
        if (rate := enforced_rate(one.values.get(key))) is not None
    }
    if not rates:
        found.notes.append(
            f"{entity} has no byte rate that limits anything ({_said(one)}), and a contract needs "
            "one. It stays as it is."
        )
        return
    contract: dict[str, Any] = {"perBroker": {way: quantity(rate) for way, rate in rates.items()}}
    for other, key in _OTHERS.items():
        number = number_of(one.values.get(key))
        if number is not None and number > 0:
            contract[other] = int(number) if number == int(number) else float(number)
    why = found.add(entity, contract, rates, levels=levels)
    if why is not None:
        found.notes.append(f"{entity} ({_said(one)}) fits no member: {why}. It stays as it is.")


def _said(one: StoredQuota) -> str:
    return ", ".join(f"{key.value}={text}" for key, text in one.values.items())
