"""Whom a quota is for: a user, a client id, or the pair, each of which may be Kafka's default entity.

Entities are looked up ten times each in every pass, so one knows its hash from the start.
"""

from dataclasses import dataclass, field
from enum import Enum


class Default(Enum):
    """Kafka's default entity, as a value of its own, so that a real user called `<default>` stays a plain string."""

    DEFAULT = "<default>"


EntityPart = str | Default | None

_DEFAULT = Default.DEFAULT


@dataclass(frozen=True, slots=True)
class Entity:
    """Whom a quota is for: a user, a client id, or the pair; each may be Kafka's default entity; None = not part of it."""

    user: EntityPart = None
    client_id: EntityPart = None
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.user is None and self.client_id is None:
            raise ValueError("an entity needs a user, a client id, or both")
        if self.user == "" or self.client_id == "":
            raise ValueError("an entity's user and client id must not be empty")
        object.__setattr__(self, "_hash", hash((self.user, self.client_id)))

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        parts = (("user", self.user), ("client-id", self.client_id))
        return ", ".join(f"{name}={part.value if isinstance(part, Default) else part}" for name, part in parts if part is not None)

    @property
    def is_default(self) -> bool:
        """Whether Kafka's default user or default client id is part of it."""
        return self.user is _DEFAULT or self.client_id is _DEFAULT

    @property
    def sort_key(self) -> str:
        """An order for people: absent, then default, then names; a user comes before the same user's clients."""
        return f"{_part_key(self.user)}\0{_part_key(self.client_id)}"


def _part_key(part: EntityPart) -> str:
    if part is None:
        return ""
    return f"2{part}" if isinstance(part, str) else "1"
