"""DescribeClientQuotas and AlterClientQuotas, between entities with texts and Kafka's doubles."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from tidegate.kafka.adminapi.client import AdminClient, Lost, is_refusal, require_done
from tidegate.kafka.protocol import admin, for_code
from tidegate_logic.model import BYTE_RATE_KEYS, Default, Entity, EntityPart, QuotaKey

Values = Mapping[QuotaKey, str]
Changes = Mapping[QuotaKey, str | None]

_KEYS = {key.value: key for key in QuotaKey}
_LONG_MAX = 2**63 - 1
_FEW = 4  # so many entities are asked for one by one, and more of them by all there are
_EXACT, _DEFAULT = 0, 1


def describe(
    client: AdminClient,
    entities: Collection[Entity] | None,
    topic: str,
    at: tuple[str, int] | None = None,
) -> dict[Entity, Values]:
    """The quotas of these entities, without those that have none; None = of all.

    Any broker is asked, or the one `at` this address: raises Lost where that one does not answer.
    """
    if entities is not None and len(entities) <= _FEW:
        found: dict[Entity, Values] = {}
        for entity in entities:
            found.update(_described(client, _exactly(entity), topic, at))
        return found
    request = admin.DescribeClientQuotasRequest(components=[], strict=False)
    every = _described(client, request, topic, at)
    return every if entities is None else {one: every[one] for one in entities if one in every}


def _exactly(entity: Entity) -> Any:
    component = admin.DescribeClientQuotasRequest.ComponentData
    return admin.DescribeClientQuotasRequest(
        components=[
            component(entity_type=kind, match_type=_EXACT, match=name)
            if name is not None
            else component(entity_type=kind, match_type=_DEFAULT, match=None)
            for kind, name in _parts(entity)
        ],
        strict=True,
    )


def _described(
    client: AdminClient, request: Any, topic: str, at: tuple[str, int] | None
) -> dict[Entity, Values]:
    answer = client.read(request) if at is None else client.ask(request, at)
    require_done(answer.error_code, "describe client quotas", topic)
    found: dict[Entity, Values] = {}
    for entry in answer.entries or ():
        entity = _entity(entry.entity)
        if entity is not None:
            found[entity] = {
                _KEYS[value.key]: text_of(_KEYS[value.key], value.value)
                for value in entry.values
                if value.key in _KEYS
            }
    return found


def alter(
    client: AdminClient, changes: Mapping[Entity, Changes], topic: str
) -> dict[Entity, str | None]:
    """Change these keys and no others; entity -> why it was refused, None = it was done.

    A controller that refuses a whole batch for one value in it is asked again for halves of it.
    Raises LeaseLost, and Lost when no answer came: some of them may be changed.
    """
    if not changes:
        return {}
    answer = client.write(_request(changes))
    refused: dict[Entity, str | None] = {}
    for entry in answer.entries:
        entity = _entity(entry.entity)
        if entity is None or entity not in changes:
            continue
        if is_refusal(entry.error_code):
            refused[entity] = entry.error_message or for_code(entry.error_code).__name__
        else:
            require_done(entry.error_code, "alter client quotas", topic)
            refused[entity] = None
    if len(changes) > 1 and all(refused.get(entity) for entity in changes):
        for half in _halves(changes):
            refused.update(alter(client, half, topic))
    return refused


def has_controller(client: AdminClient, topic: str) -> bool:
    """Whether an active controller takes changes now.

    It is asked to check a change and not to make it (`validate_only`); brokers answer that from
    nothing that they know themselves.
    """
    nothing: dict[Entity, Changes] = {Entity(Default.DEFAULT): {QuotaKey.CONSUMER_BYTE_RATE: None}}
    try:
        answer = client.ask(_request(nothing, validate_only=True))
        for entry in answer.entries:
            require_done(entry.error_code, "alter client quotas", topic)
    except Lost:
        return False
    return bool(answer.entries)


def _request(changes: Mapping[Entity, Changes], *, validate_only: bool = False) -> Any:
    kind = admin.AlterClientQuotasRequest.EntryData
    entries = [
        kind(
            entity=[
                kind.EntityData(entity_type=part, entity_name=name) for part, name in _parts(entity)
            ],
            ops=[
                kind.OpData(key=key.value, value=float(text or 0), remove=text is None)
                for key, text in wanted.items()
            ],
        )
        for entity, wanted in changes.items()
    ]
    return admin.AlterClientQuotasRequest(entries=entries, validate_only=validate_only)


def _halves(changes: Mapping[Entity, Changes]) -> Iterable[dict[Entity, Changes]]:
    every = list(changes.items())
    middle = len(every) // 2
    return dict(every[:middle]), dict(every[middle:])


def text_of(key: QuotaKey, number: float) -> str:
    """A value as texts have it everywhere else.

    Doubles above 2^53 are coarse; Kafka's largest number, which is one more as a double, is kept.
    """
    if number.is_integer():
        whole = int(number)
        return str(min(whole, _LONG_MAX) if key in BYTE_RATE_KEYS else whole)
    return repr(number)


def _parts(entity: Entity) -> list[tuple[str, str | None]]:
    parts: list[tuple[str, EntityPart]] = [("user", entity.user), ("client-id", entity.client_id)]
    return [
        (kind, None if isinstance(part, Default) else part)
        for kind, part in parts
        if part is not None
    ]


def _entity(components: Iterable[Any]) -> Entity | None:
    """The entity of an answer; None for those of IP addresses, and for an empty name."""
    parts: dict[str, EntityPart] = {
        one.entity_type: Default.DEFAULT if one.entity_name is None else one.entity_name
        for one in components
    }
    user, client = parts.get("user"), parts.get("client-id")
    if not parts or not parts.keys() <= {"user", "client-id"} or "" in (user, client):
        return None
    return Entity(user, client)
