"""`tidegate import`: the quotas that a cluster has already, as BusinessTiers to look over.

They come from Kafka, or with --strimzi from the KafkaUsers that declare them. Every contract is the
quota as it stands, for each broker, so that taking them over changes no quota. A level is a
proposal: nothing says how important a client is.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Annotated, Any

import typer
import yaml
from pydantic import ValidationError

from controller_logic.model import Entity, Level, QuotaKey, StoredQuota
from controller_logic.quota_values import enforced_rate, number_of
from controller_logic.quotas.strimzi import IGNORED_USERS, PAUSED
from controller_logic.reasons import Reason
from tidegate.commands import options
from tidegate.commands.context import CommandContext, command_context
from tidegate.commands.inputs import (
    DEFAULT_NAMESPACE,
    PolicySource,
    find_policy,
    opened_cluster,
    opened_store,
)
from tidegate.commands.options import CommandOptions, takes_policy_and_cluster
from tidegate.commands.output import Page
from tidegate.control.strimzi import (
    CLUSTER_LABEL,
    StrimziPlace,
    declared_quotas,
    list_kafka_users,
    read_kafka_user,
    strimzi_place,
)
from tidegate.errors import InvalidResource, NotFound
from tidegate.resources.kinds import API_VERSION, parse_object
from tidegate.resources.rates import FLOOR_BYTES_PER_SECOND
from tidegate.resources.tiers import MAX_MEMBERS, TierMember

# Work that can wait, by the words that people name it with; all other clients are proposed for L2.
_CAN_WAIT = re.compile(
    r"(?:^|[^a-z])(?:ad-?hoc|analytics|archive|back-?fill|batch|bench|crawler|dump|etl|export|"
    r"import|load-?test|migrat\w*|mirror\w*|nightly|replay|report\w*|spark|test)(?:[^a-z]|$)"
)


@takes_policy_and_cluster
def import_quotas(
    context: typer.Context,
    *,
    asked: CommandOptions,
    match: Annotated[
        list[str] | None,
        typer.Option(
            "--match",
            metavar="PATTERN",
            help="Only users and client ids like this, such as 'orders-*'; may be repeated.",
        ),
    ] = None,
    level_of: Annotated[
        list[str] | None,
        typer.Option(
            "--level-of",
            metavar="PATTERN=LEVEL",
            help="The level of users and client ids like this, such as 'checkout*=L0'; may be "
            "repeated, and the first that fits counts.",
        ),
    ] = None,
    throttled_percent: Annotated[
        int,
        typer.Option(
            "--throttled-percent",
            min=1,
            max=100,
            help="What members of L1 to L3 drop to at most, in percent of the smallest contract of "
            "their tier.",
        ),
    ] = 20,
    strimzi: Annotated[
        bool,
        typer.Option(
            "--strimzi",
            help="Take the quotas that the KafkaUsers of the policy's Strimzi cluster declare. "
            "Kafka is not asked.",
        ),
    ] = False,
    strimzi_cluster: Annotated[
        str | None,
        typer.Option(
            "--strimzi-cluster",
            metavar="[NAMESPACE/]NAME",
            help="The same for this Kafka object of Strimzi. No policy is needed then.",
        ),
    ] = None,
    debug: options.Debug = False,
) -> None:
    """Print BusinessTiers for the quotas that the cluster has already, to be looked over and
    applied. Nothing is written, neither to Kafka nor to Kubernetes.

    Each contract is the quota as it stands on each broker, so that applying them changes no quota.
    Tiers are made of members whose rates are alike, because all of a tier drop to the same rates.
    Levels are proposals by name: work that can wait is L3, the rest L2. With --zookeeper alone
    neither policy nor Kubernetes is needed; POLICY and --namespace are then only written down.
    Members of the policy's tiers are left out.

    With --strimzi the quotas are those that KafkaUsers declare. They stay Strimzi's until they are
    taken out of the KafkaUsers, which needs more than that: see docs/strimzi.md.
    """
    around = command_context(context, debug=debug)
    of_strimzi = strimzi or strimzi_cluster is not None
    policy_key, stored, known = (
        _declared(around, asked, strimzi_cluster) if of_strimzi else _stored(around, asked)
    )
    levels = [_level_rule(text) for text in level_of or ()]
    found = propose(
        (one for one in stored.values() if one.entity not in known and _matches(one.entity, match)),
        levels,
    )
    manifests = tier_manifests(found.members, policy_key, throttled_percent=throttled_percent)
    if manifests:
        around.out.write(
            yaml.safe_dump_all(manifests, sort_keys=False, allow_unicode=True, width=120)
        )
    page = Page(around.err)
    for note in found.notes:
        page.warn(note)
    page.say(
        f"{len(found.members)} users and clients in {len(manifests)} BusinessTiers for policy "
        f"{policy_key}; {len(found.notes)} left out; {len(known & stored.keys())} are in tiers "
        "already. Nothing was written."
    )
    if manifests:
        page.say(
            "Look over the levels and throttledRates, and then what would be written: tidegate "
            "plan -f POLICY.yaml -f TIERS.yaml --all"
        )
    if manifests and of_strimzi:
        page.say(_HAND_OVER)


_HAND_OVER = (
    "A member stays OwnedByStrimzi while its KafkaUser declares quotas. Without spec.quotas the "
    f"User Operator removes its quotas every two minutes, whatever {IGNORED_USERS} says, until the "
    f"KafkaUser has the annotation {PAUSED}=true. docs/strimzi.md has the other ways."
)


def _declared(
    around: CommandContext, asked: CommandOptions, cluster: str | None
) -> tuple[str, Mapping[Entity, StoredQuota], frozenset[Entity]]:
    """The policy's key, what KafkaUsers of its Strimzi cluster declare, and who is in a tier.

    `cluster` is the Strimzi cluster, and no policy is looked for then.
    """
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
    return key, {user: StoredQuota(user, quotas) for user, quotas in users if quotas}, known


def _place_of(source: PolicySource) -> StrimziPlace:
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
    namespace, _, name = (asked.policy.policy or "kafka").rpartition("/")
    return f"{namespace or asked.policy.namespace or DEFAULT_NAMESPACE}/{name}"


def _stored(
    around: CommandContext, asked: CommandOptions
) -> tuple[str, Mapping[Entity, StoredQuota], frozenset[Entity]]:
    """The policy's key, everything in the quota store, and who is in a tier already."""
    if asked.access.zookeeper is not None and not asked.policy.files:
        with opened_store(around, asked.access) as store:
            stored = store.read_everything()
        return _unread_policy_key(asked), stored, frozenset()
    source = find_policy(around, asked.policy)
    with opened_cluster(around, source, asked.access) as cluster:
        stored = cluster.store.read_everything()
    return source.declared.policy.key, stored, frozenset(source.declared.entities)


def _matches(entity: Entity, patterns: Sequence[str] | None) -> bool:
    return not patterns or any(_fits(entity, pattern) for pattern in patterns)


def _fits(entity: Entity, pattern: str) -> bool:
    names = (entity.user, entity.client_id)
    return any(isinstance(name, str) and fnmatchcase(name, pattern) for name in names)


def _level_rule(text: str) -> tuple[str, Level]:
    pattern, _, level = text.rpartition("=")
    if not pattern or level not in [one.value for one in Level]:
        raise InvalidResource(
            f"--level-of {text!r} cannot be read. Write it as PATTERN=LEVEL, for example "
            "'checkout*=L0'."
        )
    return pattern, Level(level)


@dataclass(frozen=True, slots=True)
class Proposal:
    """One member with its level; `rates` are bytes per second on each broker, by direction."""

    level: Level
    document: Mapping[str, Any]
    rates: Mapping[str, int]

    @property
    def magnitude(self) -> int:
        """The power of ten of its smallest rate: members of a tier have the same."""
        return len(str(min(self.rates.values()))) - 1


@dataclass(slots=True)
class Proposals:
    """The members, and a sentence for each quota that becomes none."""

    members: list[Proposal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


_DIRECTIONS = {"fetch": QuotaKey.CONSUMER_BYTE_RATE, "produce": QuotaKey.PRODUCER_BYTE_RATE}
_OTHERS = {
    "requestPercentage": QuotaKey.REQUEST_PERCENTAGE,
    "controllerMutationsPerSecond": QuotaKey.CONTROLLER_MUTATION_RATE,
}


def propose(stored: Iterable[StoredQuota], levels: Sequence[tuple[str, Level]]) -> Proposals:
    """Members for these quotas, by name; the first of `levels` that fits an entity is its own."""
    found = Proposals()
    names: set[str] = set()
    for one in sorted(stored, key=lambda each: each.entity.sort_key):
        if one.problem is not None:
            found.notes.append(f"{one.entity}: {one.problem}")
        elif one.values:
            _propose(one, levels, found, names)
    return found


def _propose(
    one: StoredQuota, levels: Sequence[tuple[str, Level]], found: Proposals, names: set[str]
) -> None:
    entity = one.entity
    user, client_id = entity.user, entity.client_id
    if not all(part is None or isinstance(part, str) for part in (user, client_id)):
        found.notes.append(
            f"{entity} is one of Kafka's default entities, which no tier can have. Declare it in "
            f"spec.defaults of the policy: {_said(one)}"
        )
        return
    rates = {
        way: rate
        for way, key in _DIRECTIONS.items()
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
    parts = {"user": user, "clientId": client_id}
    name = _member_name(entity, names)
    document = {
        "name": name,
        **{field_name: part for field_name, part in parts.items() if part is not None},
        "contract": contract,
    }
    try:
        TierMember.model_validate(document)
    except ValidationError as error:
        why = "; ".join(details["msg"].removeprefix("Value error, ") for details in error.errors())
        found.notes.append(f"{entity} ({_said(one)}) fits no member: {why}. It stays as it is.")
        return
    names.add(name)
    found.members.append(Proposal(_level(entity, levels), document, rates))


def _said(one: StoredQuota) -> str:
    return ", ".join(f"{key.value}={text}" for key, text in one.values.items())


def _level(entity: Entity, levels: Sequence[tuple[str, Level]]) -> Level:
    for pattern, level in levels:
        if _fits(entity, pattern):
            return level
    spelled = " ".join(str(part).lower() for part in (entity.user, entity.client_id) if part)
    return Level.L3 if _CAN_WAIT.search(spelled) else Level.L2


def _member_name(entity: Entity, taken: set[str]) -> str:
    """A name by user and client id that no other member has."""
    spelled = "-".join(str(part) for part in (entity.user, entity.client_id) if part)
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", spelled).strip("._-")[:120] or "member"
    name, number = plain, 1
    while name in taken:
        number += 1
        name = f"{plain}-{number}"
    return name


_UNITS = (("G", 10**9), ("M", 10**6), ("k", 10**3))
_BINARY_UNITS = (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))


def quantity(bytes_per_second: int) -> str:
    """The exact rate as people write it: 50M, 10Mi, or the number where no unit divides it."""
    for unit, size in (*_UNITS, *_BINARY_UNITS):
        if bytes_per_second % size == 0:
            return f"{bytes_per_second // size}{unit}"
    return str(bytes_per_second)


def tier_manifests(
    members: Iterable[Proposal], policy_key: str, *, throttled_percent: int
) -> list[dict[str, Any]]:
    """BusinessTiers of members of one level whose rates are alike, the most important first."""
    groups: dict[tuple[Level, int], list[Proposal]] = {}
    for one in members:
        groups.setdefault((one.level, one.magnitude), []).append(one)
    manifests = []
    for (level, magnitude), group in sorted(groups.items()):
        for part, first in enumerate(range(0, len(group), MAX_MEMBERS)):
            some = group[first : first + MAX_MEMBERS]
            name = f"imported-{level.value.lower()}-{quantity(10**magnitude).lower()}"
            name += f"-{part + 1}" if part else ""
            manifests.append(
                _tier(name, level, some, policy_key, throttled_percent=throttled_percent)
            )
    return manifests


def _tier(
    name: str,
    level: Level,
    members: Sequence[Proposal],
    policy_key: str,
    *,
    throttled_percent: int,
) -> dict[str, Any]:
    namespace, _, policy = policy_key.partition("/")
    spec: dict[str, Any] = {"policyRef": {"name": policy}, "level": level.value}
    if level is not Level.L0:
        smallest = {
            way: min(one.rates[way] for one in members if way in one.rates)
            for way in _DIRECTIONS
            if any(way in one.rates for one in members)
        }
        spec["throttledRates"] = {
            "perBroker": {
                way: quantity(
                    max(FLOOR_BYTES_PER_SECOND, _rounded_down(rate * throttled_percent // 100))
                )
                for way, rate in smallest.items()
            }
        }
    spec["members"] = [dict(one.document) for one in members]
    manifest = {
        "apiVersion": API_VERSION,
        "kind": "BusinessTier",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }
    parse_object(manifest, strict=True)
    return manifest


def _rounded_down(rate: int) -> int:
    """Two digits of it, which people can read."""
    size: int = 10 ** max(0, len(str(rate)) - 2)
    return rate // size * size
