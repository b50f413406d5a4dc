"""Names of quota entities as Kafka spells them in ZooKeeper, in both directions.

Encoding is Kafka's `Sanitizer`: every byte of the UTF-8 name but `A-Z a-z 0-9 - _ .` becomes `%XX`.
Decoding is stricter than Kafka's: a node name that encoding would not produce is foreign, because
brokers look up no session under it.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, unquote_to_bytes

from tidegate.errors import ForeignContent
from tidegate_logic.model import (
    BYTE_RATE_KEYS,
    MIN_BYTE_RATE,
    Default,
    Entity,
    EntityPart,
    QuotaKey,
)

# The texts that a quota value may have: those that brokers can read, and the fewer that we write. A
# broker that reads anything else at its start exits, so every text is checked here once more before
# it is written.


_LONG = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_DOUBLE = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,18})?([eE][+-]?[0-9]{1,2})?", re.ASCII)
_OUR_BYTE_RATE = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)
_OUR_NUMBER = re.compile(r"(?=.*[1-9])[0-9]{1,15}(\.[0-9]{1,6})?", re.ASCII)
_LONG_MAX = 2**63 - 1
_LONG_MIN = -(2**63)


def is_readable(key: QuotaKey, text: str) -> bool:
    """Whether every broker parses this text.

    Zero and negative numbers are readable; Kafka takes them as unlimited.
    """
    if key in BYTE_RATE_KEYS:
        return _LONG.fullmatch(text) is not None and _LONG_MIN <= int(text) <= _LONG_MAX
    return _DOUBLE.fullmatch(text) is not None


def is_ours(key: QuotaKey, text: str) -> bool:
    """Whether we may set this text: a byte rate of 1024 B/s and more, or a number above 0."""
    if key in BYTE_RATE_KEYS:
        return (
            _OUR_BYTE_RATE.fullmatch(text) is not None and MIN_BYTE_RATE <= int(text) <= _LONG_MAX
        )
    return _OUR_NUMBER.fullmatch(text) is not None


# The content of a quota znode: reading is strict, and writing changes our keys only.
#
# A node that cannot be read safely is not written: it may hold SCRAM credentials that a rewrite
# would delete. Other keys keep their place and the exact text of their JSON strings, escapes
# included. White space between them is not kept; Kafka does not keep it either.


_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}:,]|[^\s{}:,"]+')
_FIELDS = {"version", "config"}
_QUOTA_KEYS: frozenset[str] = frozenset(QuotaKey)


@dataclass(frozen=True, slots=True)
class Setting:
    """One key of a quota znode with its value, each also as the JSON string that was there."""

    key: str
    value: str
    key_token: str
    value_token: str

    @classmethod
    def fresh(cls, key: QuotaKey, value: str) -> "Setting":
        """A setting of our own; its tokens are plain JSON."""
        return cls(key.value, value, json.dumps(key.value), json.dumps(value))


@dataclass(frozen=True, slots=True)
class QuotaContent:
    """Everything in one quota znode, in its order.

    No settings = no node, an empty map, or Kafka's empty parent node.
    """

    settings: tuple[Setting, ...] = ()

    @property
    def quotas(self) -> dict[QuotaKey, str]:
        """The quota keys that are present, with their exact texts."""
        return {
            QuotaKey(setting.key): setting.value
            for setting in self.settings
            if setting.key in _QUOTA_KEYS
        }

    def changed(self, changes: Mapping[QuotaKey, str | None]) -> "QuotaContent":
        """The content after `changes`; None removes a key, and new keys come last.

        Removing an absent key is no change.
        """
        present = self.quotas
        kept = [_changed_setting(setting, changes) for setting in self.settings]
        added = [
            Setting.fresh(key, value)
            for key, value in sorted(changes.items())
            if value is not None and key not in present
        ]
        return QuotaContent((*(setting for setting in kept if setting is not None), *added))

    def to_bytes(self) -> bytes:
        """Compact, as a broker writes it; values are always JSON strings."""
        pairs = ",".join(f"{setting.key_token}:{setting.value_token}" for setting in self.settings)
        return f'{{"version":1,"config":{{{pairs}}}}}'.encode()


EMPTY = QuotaContent()


def parse_quota(data: bytes | None, *, child_count: int = 0) -> QuotaContent:
    """Read a znode's data. Raises ForeignContent with what is wrong with it.

    A node that is only the parent of others has no data in Kafka, and reads as nothing set; so do
    zero bytes while there are children. Zero bytes on a node without children are refused: another
    writer has emptied it.
    """
    if data is None or (data == b"" and child_count):
        return EMPTY
    if data == b"":
        raise ForeignContent(
            "it is empty (zero bytes), which Kafka never writes; brokers read it as no quota and "
            "no SCRAM credentials"
        )
    try:
        text = data.decode("utf-8")
        root = json.loads(text, object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise ForeignContent(
            f"it is not JSON as Kafka writes it ({json_problem(error)})"
        ) from error
    config = _config_of(root)
    settings = _settings(text, config)
    for key, value in QuotaContent(settings).quotas.items():
        _require_readable(key, value)
    return QuotaContent(settings)


def json_problem(error: Exception) -> str:
    """What is wrong with a text that is not the expected JSON, in plainer words than Python's."""
    match error:
        case json.JSONDecodeError():
            return f"the text ends early or is invalid at character {error.pos + 1}"
        case UnicodeDecodeError():
            return "it is not UTF-8"
        case RecursionError():
            return "it is nested too deeply"
    return str(error)


def _config_of(root: object) -> dict[str, str]:
    if not isinstance(root, dict) or set(root) != _FIELDS:
        raise ForeignContent('it is not an object with exactly the fields "version" and "config"')
    if type(root["version"]) is not int or root["version"] != 1:
        raise ForeignContent(f"its version is {root['version']!r}; only version 1 is known")
    config = root["config"]
    if not isinstance(config, dict):
        raise ForeignContent('its "config" is not an object')
    wrong = sorted(key for key, value in config.items() if not isinstance(value, str))
    if wrong:
        raise ForeignContent(
            f"the value of {wrong[0]!r} is not a JSON string; brokers refuse to start on such a "
            f"node"
        )
    return config


def _settings(text: str, config: Mapping[str, str]) -> tuple[Setting, ...]:
    # a checked document has two `{`, and after the second only string tokens, colons and commas
    tokens = _TOKEN.findall(text)
    start = tokens.index("{", 1 + tokens.index("{")) + 1
    key_tokens, value_tokens = tokens[start::4], tokens[start + 2 :: 4]
    return tuple(
        Setting(key, value, key_token, value_token)
        for (key, value), key_token, value_token in zip(
            config.items(), key_tokens, value_tokens, strict=False
        )
    )


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key appears twice")
    return found


def _require_readable(key: QuotaKey, value: str) -> None:
    if not is_readable(key, value):
        kind = "a plain decimal integer" if key in BYTE_RATE_KEYS else "a plain number"
        raise ForeignContent(
            f"its {key.value} is {value!r}, not {kind}; brokers refuse to start on such a value"
        )


def _changed_setting(setting: Setting, changes: Mapping[QuotaKey, str | None]) -> Setting | None:
    if setting.key not in _QUOTA_KEYS or QuotaKey(setting.key) not in changes:
        return setting
    value = changes[QuotaKey(setting.key)]
    if value is None or value == setting.value:
        return setting if value is not None else None
    return Setting(setting.key, value, setting.key_token, json.dumps(value))


CONFIG_ROOT = "/config"
# literal; a real user of that name is stored as %3Cdefault%3E
_DEFAULT_NODE = Default.DEFAULT.value
_IMPOSSIBLE_NODES = frozenset({"", ".", ".."})
_IS_ITS_OWN_NODE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*").fullmatch


def encode_name(name: str) -> str:
    """The node name for a user or client id.

    Raises ForeignContent for a name that no znode can have (empty, `.`, `..`, not valid Unicode).
    """
    if _IS_ITS_OWN_NODE(name):  # as most are, and a pass asks for thousands
        return name
    try:
        # quote() leaves the tilde alone, Java does not
        encoded = quote(name, safe="").replace("~", "%7E")
    except UnicodeEncodeError as error:
        raise ForeignContent(
            f"The name {name!r} is not valid Unicode, so Kafka cannot have a quota for it. "
            f"Correct the name."
        ) from error
    if encoded in _IMPOSSIBLE_NODES:
        raise ForeignContent(
            f"The name {name!r} cannot be the name of a znode, so Kafka cannot have a quota for "
            f"it. Correct the name."
        )
    return encoded


def decode_name(node: str) -> str:
    """The user or client id of a node name.

    Raises ForeignContent when `encode_name` would not give this node name back.
    """
    if _IS_ITS_OWN_NODE(node):
        return node
    try:
        name = unquote_to_bytes(node).decode("utf-8")
    except UnicodeDecodeError:
        name = ""
    if node in _IMPOSSIBLE_NODES or not name or encode_name(name) != node:
        raise ForeignContent(
            f"The node name {node!r} is not one that Kafka writes: no user or client id is "
            f"looked up under it."
        )
    return name


def entity_path(entity: Entity) -> str:
    """The path below `/config/`, as notifications spell it.

    Examples: `users/bob/clients/c%201`, `clients/<default>`.
    """
    if entity.user is None:
        return f"clients/{_encode_part(entity.client_id)}"
    user = f"users/{_encode_part(entity.user)}"
    return user if entity.client_id is None else f"{user}/clients/{_encode_part(entity.client_id)}"


def config_path(entity: Entity) -> str:
    """The entity's znode, below the chroot."""
    return f"{CONFIG_ROOT}/{entity_path(entity)}"


def entity_of_path(path: str) -> Entity:
    """The entity of a path below `/config/`.

    Raises ForeignContent for anything that `entity_path` does not give.
    """
    match path.split("/"):
        case ["users", user]:
            return Entity(user=_decode_part(user))
        case ["users", user, "clients", client]:
            return Entity(user=_decode_part(user), client_id=_decode_part(client))
        case ["clients", client]:
            return Entity(client_id=_decode_part(client))
    raise ForeignContent(f"{path!r} is not the path of a client quota.")


def ledger_node(entity: Entity) -> str:
    """One node name for the whole entity: its path, encoded once more so that it holds no slash."""
    return encode_name(entity_path(entity))


def entity_of_ledger_node(node: str) -> Entity:
    """The entity of a ledger node's name.

    Raises ForeignContent for a name that `ledger_node` does not give.
    """
    return entity_of_path(decode_name(node))


def _encode_part(part: EntityPart) -> str:
    if part is None:
        raise ValueError("an absent part has no node name")
    return _DEFAULT_NODE if isinstance(part, Default) else encode_name(part)


def _decode_part(node: str) -> str | Default:
    return Default.DEFAULT if node == _DEFAULT_NODE else decode_name(node)
