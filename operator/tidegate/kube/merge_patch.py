"""RFC 7386 JSON merge patch: apply one, and find the smallest one that leads from what is there to what is wanted.

Pure. It knows nothing of Kubernetes; lists are values here, replaced as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def difference(current: Mapping[str, Any], desired: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch that makes every key of `desired` hold; {} when it holds already.

    Keys that `desired` does not name are left as they are. A key whose desired value is None is removed if it is there.
    """
    patch: dict[str, Any] = {}
    for key, wanted in desired.items():
        present = current.get(key)
        if isinstance(wanted, Mapping) and isinstance(present, Mapping):
            if inner := difference(present, wanted):
                patch[key] = inner
        elif wanted != present or isinstance(wanted, bool) is not isinstance(present, bool):
            patch[key] = wanted
    return patch


def apply(patch: Mapping[str, Any], current: Mapping[str, Any]) -> dict[str, Any]:
    """`current` with `patch` merged into it; `current` itself is not changed."""
    merged = dict(current)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            present = merged.get(key)
            merged[key] = apply(value, present if isinstance(present, Mapping) else {})
        else:
            merged[key] = value
    return merged
