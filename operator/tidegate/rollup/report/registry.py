"""Who is called what, in which level, and promised what, as far as the policy's tiers tell."""

from collections.abc import Iterable

from tidegate.rollup.report.request import ClientKey, MemberTerms
from tidegate.rollup.schemas import Direction


class Registry:
    """Terms by client. Usage of somebody who is in no tier, or no longer, is named by its user and client id."""

    def __init__(self, members: Iterable[MemberTerms]) -> None:
        self._members = {terms.client: terms for terms in members}
        self._levels = {terms.client.tier: terms.level for terms in self._members.values()}

    def name(self, client: ClientKey) -> str:
        terms = self._members.get(client)
        return terms.name if terms is not None else client.words

    def level(self, tier: str) -> str:
        """ "" where it is not known."""
        return self._levels.get(tier, "")

    def contract(self, client: ClientKey, direction: Direction) -> int | None:
        """Bytes per second on each broker; None = unlimited, or not known."""
        terms = self._members.get(client)
        return terms.contracts.get(direction) if terms is not None else None
