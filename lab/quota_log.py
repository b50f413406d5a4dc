"""What a broker's log says it did with quotas: the only outside proof that a broker took a change over (no metric shows the value)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

DEFAULT = "<default>"
QuotaKind = Literal["PRODUCE", "FETCH", "REQUEST", "CONTROLLER_MUTATION"]

_LINE = re.compile(r"(?:Changing|Removing) ([A-Z_]+) quota for (.+?)(?: to ([0-9.E+-]+))?$", re.MULTILINE)


@dataclass(frozen=True)
class QuotaChange:
    """A broker's quota of one kind for one entity, as it last set it: bytes per second, percent, or mutations per second.

    `value` None means removed. `user` is written as in its znode's name (percent-encoded), `client_id` plainly; `DEFAULT` is Kafka's
    default entity; None means the entity has no such part.
    """

    kind: QuotaKind
    user: str | None
    client_id: str | None
    value: float | None

    def entity_text(self) -> str:
        """The entity in the words of the broker's log."""
        return " ".join(part for part in (_part("user", self.user), _part("client-id", self.client_id)) if part)


def is_applied(log_text: str, change: QuotaChange) -> bool:
    """Whether the newest line of the log about this entity and kind says exactly this value.

    False when no line speaks of it. A broker logs a removal for every kind an entity does not have, so a removal also shows for
    an entity that never had the quota.
    """
    wanted = (change.kind, change.entity_text())
    values = [match[3] for match in _LINE.finditer(log_text) if (match[1], match[2]) == wanted]
    return bool(values) and _number(values[-1]) == change.value


def _number(text: str | None) -> float | None:
    return None if text is None else float(text)


def _part(word: str, name: str | None) -> str:
    if name is None:
        return ""
    return f"default {word}" if name == DEFAULT else f"{word} {name}"
