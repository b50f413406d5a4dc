"""Share groups of one policy's cluster, read beside its passes, which take the newest answer.

Brokers are asked once a minute: five rounds of the record lock, after which a throttled record has
no delivery attempt left, last two and a half with Kafka's defaults. What was not read is as it was.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from threading import Thread
from typing import Protocol

import structlog

from tidegate.errors import TidegateError
from tidegate_logic.contracts.share_groups import can_be_read_with
from tidegate_logic.model import ShareGroup, Tier

log = structlog.get_logger(__name__)

REPEAT_SECONDS = 60.0
_FIRST_ANSWER_SECONDS = 1.0  # the first pass waits for so long, so that most quotas need not


class ShareGroupSource(Protocol):
    """Where they are read; `kafka.share_groups` is the real one."""

    def read(self) -> tuple[ShareGroup, ...]:
        """Those that have members now. Raises a TidegateError where they are not known in full."""
        ...


@dataclass(slots=True)
class ShareGroupWatch:
    """The newest answer. With `beside` it is for a later pass; without, the pass waits for it."""

    beside: bool = True
    _source: ShareGroupSource | None = None
    _known: tuple[ShareGroup, ...] | None = None
    _asked_at_seconds: float | None = None
    _question: Thread | None = field(default=None, repr=False)

    def seen(
        self, source: ShareGroupSource | None, tiers: Iterable[Tier] | None, now_seconds: float
    ) -> tuple[ShareGroup, ...] | None:
        """The share groups with members; None = not known yet. Asks when it is due.

        There are none without a source, and where no member of `tiers` could be matched with one.
        """
        members = (member for tier in tiers or () for member in tier.members)
        if source is None or not any(can_be_read_with(member) for member in members):
            return ()
        asked_at_seconds = self._asked_at_seconds
        is_due = (
            asked_at_seconds is None
            or source is not self._source
            or abs(now_seconds - asked_at_seconds) >= REPEAT_SECONDS
        )
        if is_due and (self._question is None or not self._question.is_alive()):
            self._source, self._asked_at_seconds = source, now_seconds
            self._question = Thread(target=self._ask, args=(source,), daemon=True)
            self._question.start()
            if not self.beside or asked_at_seconds is None:
                self._question.join(_FIRST_ANSWER_SECONDS if self.beside else None)
        return self._known

    def _ask(self, source: ShareGroupSource) -> None:
        try:
            self._known = source.read()
        except TidegateError as error:
            log.info("share groups are not known", why=error.message)
