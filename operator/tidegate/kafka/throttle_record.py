"""The record of the replication throttles that may be ours, as the quota store keeps it.

It is written before anything is changed, beside the ledger of quotas:

    {"version": 1, "policy_key": "streaming/orders", "entries":
      {"broker/1": {"leader.replication.throttled.rate": ["52428800"]},
       "topic/orders": {"leader.replication.throttled.replicas": ["0:1", "0:2"]}}}

With rates of background traffic it is version 2, so a Tidegate that would lose what was there
before, the item `before=...`, changes nothing.
"""

import contextlib
import json

from tidegate.errors import ForeignContent
from tidegate.kafka.ledger import compact, mapping, text
from tidegate.kafka.quota_node import json_problem
from tidegate_logic.replication.throttles import Items, Resource, ResourceKind, is_lasting

_FORMAT, _WITH_BACKGROUND = 1, 2
_MOST_RECORD_BYTES = 600_000  # ZooKeeper takes requests of 1 MiB


def record_to_bytes(record: Items, policy_key: str) -> bytes | None:
    """The record as compact JSON; None when it is empty.

    Raises ForeignContent if it is too large to be kept, so nothing is set.
    """
    if not record:
        return None
    entries = {
        f"{resource.kind.value}/{resource.name}": {
            key: sorted(items) for key, items in sorted(keys.items())
        }
        for resource, keys in sorted(record.items())
    }
    lasting = any(is_lasting(key) for keys in record.values() for key in keys)
    version = _WITH_BACKGROUND if lasting else _FORMAT
    content = compact({"version": version, "policy_key": policy_key, "entries": entries})
    if len(content) > _MOST_RECORD_BYTES:
        raise ForeignContent(
            f"So many partitions are moving that the record of their throttles has {len(content)} "
            f"bytes, and {_MOST_RECORD_BYTES} can be kept. No replication throttle is changed; "
            "move fewer partitions at once."
        )
    return content


def record_of(content: bytes | None) -> Items:
    """The record in these bytes. Raises ForeignContent when it is not what we write."""
    if content is None:
        return {}
    try:
        root = mapping(json.loads(content.decode("utf-8")))
        if root.get("version") not in (_FORMAT, _WITH_BACKGROUND):
            known = f"{_FORMAT} and {_WITH_BACKGROUND} are known"
            raise ValueError(f"its format is {root.get('version')!r}, only {known}")
        return {
            _resource(name): {key: _items(items) for key, items in mapping(keys).items()}
            for name, keys in mapping(root["entries"]).items()
        }
    except (KeyError, ValueError, RecursionError) as error:
        raise ForeignContent(
            f"The record of replication throttles cannot be read ({json_problem(error)}), so none "
            "is changed. If a newer Tidegate wrote it, use that version."
        ) from error


def policy_key_of(content: bytes) -> str:
    """The policy that keeps this record; "" where the record does not say it."""
    with contextlib.suppress(ValueError, RecursionError):
        root = json.loads(content.decode("utf-8"))
        if isinstance(root, dict) and isinstance(root.get("policy_key"), str):
            return str(root["policy_key"])
    return ""


def _resource(name: str) -> Resource:
    kind, separator, rest = name.partition("/")
    if not separator or not rest:
        raise ValueError(f"{name!r} is no broker or topic")
    return Resource(ResourceKind(kind), rest)


def _items(content: object) -> frozenset[str]:
    if not isinstance(content, list):
        raise ValueError("a list was expected")
    return frozenset(text(one) for one in content)
