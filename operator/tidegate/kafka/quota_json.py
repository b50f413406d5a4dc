"""The content of a quota znode: strict reading, and writing that changes our keys and not one byte of anybody else's.

What is not read safely is not written: it may hold SCRAM credentials that a rewrite would delete. Other keys keep their place and the
exact text of their JSON strings, escapes included; white space between them is not kept, as Kafka itself would not. Sources:
kafka-quotas 1.2 and 1.5.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from controller_logic.model import BYTE_RATE_KEYS, QuotaKey
from tidegate.errors import ForeignContent
from tidegate.kafka.quota_values import is_readable

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}:,]|[^\s{}:,"]+')
_FIELDS = {"version", "config"}
_QUOTA_KEYS: frozenset[str] = frozenset(QuotaKey)


@dataclass(frozen=True, slots=True)
class Setting:
    """One key of a quota znode with its value, each also as the JSON string that stood there."""

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
    """Everything in one quota znode, in its order. No settings = no node, an empty map, or Kafka's empty parent node."""

    settings: tuple[Setting, ...] = ()

    @property
    def quotas(self) -> dict[QuotaKey, str]:
        """The quota keys that are present, with their exact texts."""
        return {QuotaKey(setting.key): setting.value for setting in self.settings if setting.key in _QUOTA_KEYS}

    def changed(self, changes: Mapping[QuotaKey, str | None]) -> "QuotaContent":
        """The content after `changes` (None removes a key; removing an absent key is no change); new keys come last."""
        present = self.quotas
        kept = [_changed_setting(setting, changes) for setting in self.settings]
        added = [Setting.fresh(key, value) for key, value in sorted(changes.items()) if value is not None and key not in present]
        return QuotaContent((*(setting for setting in kept if setting is not None), *added))

    def to_bytes(self) -> bytes:
        """Compact, as a broker writes it; values are always JSON strings."""
        pairs = ",".join(f"{setting.key_token}:{setting.value_token}" for setting in self.settings)
        return f'{{"version":1,"config":{{{pairs}}}}}'.encode()


EMPTY = QuotaContent()


def parse_quota(data: bytes | None, *, child_count: int = 0) -> QuotaContent:
    """Read a znode's data, or raise ForeignContent saying what is wrong with it.

    No data at all is what Kafka gives to a node that is only the parent of others, and reads as nothing set; so do zero bytes
    while there are children. Zero bytes on a node without children are refused: somebody has emptied it.
    """
    if data is None or (data == b"" and child_count):
        return EMPTY
    if data == b"":
        raise ForeignContent("it is empty (zero bytes), which Kafka never writes; brokers read it as no quota and no SCRAM credentials")
    try:
        text = data.decode("utf-8")
        root = json.loads(text, object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise ForeignContent(f"it is not JSON as Kafka writes it ({error})") from error
    config = _config_of(root)
    settings = _settings(text, config)
    for key, value in QuotaContent(settings).quotas.items():
        _require_readable(key, value)
    return QuotaContent(settings)


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
        raise ForeignContent(f"the value of {wrong[0]!r} is not a JSON string; brokers refuse to start on such a node")
    return config


def _settings(text: str, config: Mapping[str, str]) -> tuple[Setting, ...]:
    # a checked document has two opening braces, and after the second only string tokens, colons and commas
    tokens = _TOKEN.findall(text)
    start = tokens.index("{", 1 + tokens.index("{")) + 1
    key_tokens, value_tokens = tokens[start::4], tokens[start + 2 :: 4]
    return tuple(
        Setting(key, value, key_token, value_token)
        for (key, value), key_token, value_token in zip(config.items(), key_tokens, value_tokens, strict=False)
    )


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key appears twice")
    return found


def _require_readable(key: QuotaKey, value: str) -> None:
    if not is_readable(key, value):
        kind = "a plain decimal integer" if key in BYTE_RATE_KEYS else "a plain number"
        raise ForeignContent(f"its {key.value} is {value!r}, not {kind}; brokers refuse to start on such a value")


def _changed_setting(setting: Setting, changes: Mapping[QuotaKey, str | None]) -> Setting | None:
    if setting.key not in _QUOTA_KEYS or QuotaKey(setting.key) not in changes:
        return setting
    value = changes[QuotaKey(setting.key)]
    if value is None or value == setting.value:
        return setting if value is not None else None
    return Setting(setting.key, value, setting.key_token, json.dumps(value))
