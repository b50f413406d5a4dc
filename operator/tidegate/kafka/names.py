"""Names of quota entities as Kafka spells them in ZooKeeper, in both directions.

Encoding is Kafka's `Sanitizer`: every byte of the UTF-8 name but `A-Z a-z 0-9 - _ .` becomes `%XX`. Decoding is stricter than
Kafka's: a node name that encoding would not give back is foreign, because no session is ever looked up under it. Nothing here
touches ZooKeeper.
"""

from functools import lru_cache
from urllib.parse import quote, unquote_to_bytes

from controller_logic.model import Default, Entity, EntityPart
from tidegate.errors import ForeignContent

CONFIG_ROOT = "/config"
_DEFAULT_NODE = Default.DEFAULT.value  # literal; a real user of that name is stored as %3Cdefault%3E
_IMPOSSIBLE_NODES = frozenset({"", ".", ".."})
_REMEMBERED_NAMES = 8192  # every pass names every entity several times


def encode_name(name: str) -> str:
    """The node name for a user or client id. Raises ForeignContent for names that no znode can have (empty, `.`, `..`)."""
    try:
        # quote() leaves the tilde alone, Java does not
        encoded = quote(name, safe="").replace("~", "%7E")
    except UnicodeEncodeError as error:
        raise ForeignContent(f"The name {name!r} is not valid Unicode, so Kafka cannot have a quota for it. Correct the name.") from error
    if encoded in _IMPOSSIBLE_NODES:
        raise ForeignContent(f"The name {name!r} cannot be the name of a znode, so Kafka cannot have a quota for it. Correct the name.")
    return encoded


def decode_name(node: str) -> str:
    """The user or client id of a node name. Raises ForeignContent when `encode_name` would not give this node name back."""
    try:
        name = unquote_to_bytes(node).decode("utf-8")
    except UnicodeDecodeError:
        name = ""
    if node in _IMPOSSIBLE_NODES or not name or encode_name(name) != node:
        raise ForeignContent(f"The node name {node!r} is not one that Kafka writes: no user or client id is looked up under it.")
    return name


def entity_path(entity: Entity) -> str:
    """The path below `/config/`, as notifications spell it: `users/bob/clients/c%201`, `clients/<default>`."""
    if entity.user is None:
        return f"clients/{_encode_part(entity.client_id)}"
    user = f"users/{_encode_part(entity.user)}"
    return user if entity.client_id is None else f"{user}/clients/{_encode_part(entity.client_id)}"


@lru_cache(maxsize=_REMEMBERED_NAMES)
def config_path(entity: Entity) -> str:
    """The entity's znode, below the chroot."""
    return f"{CONFIG_ROOT}/{entity_path(entity)}"


def entity_of_path(path: str) -> Entity:
    """The entity of a path below `/config/`. Raises ForeignContent for anything that `entity_path` does not give."""
    match path.split("/"):
        case ["users", user]:
            return Entity(user=_decode_part(user))
        case ["users", user, "clients", client]:
            return Entity(user=_decode_part(user), client_id=_decode_part(client))
        case ["clients", client]:
            return Entity(client_id=_decode_part(client))
    raise ForeignContent(f"{path!r} is not the path of a client quota.")


@lru_cache(maxsize=_REMEMBERED_NAMES)
def ledger_node(entity: Entity) -> str:
    """One node name for the whole entity: its path, encoded once more so that it holds no slash."""
    return encode_name(entity_path(entity))


@lru_cache(maxsize=_REMEMBERED_NAMES)
def entity_of_ledger_node(node: str) -> Entity:
    """The entity of a ledger node's name. Raises ForeignContent for a name that `ledger_node` does not give."""
    return entity_of_path(decode_name(node))


def _encode_part(part: EntityPart) -> str:
    if part is None:
        raise ValueError("an absent part has no node name")
    return _DEFAULT_NODE if isinstance(part, Default) else encode_name(part)


def _decode_part(node: str) -> str | Default:
    return Default.DEFAULT if node == _DEFAULT_NODE else decode_name(node)
