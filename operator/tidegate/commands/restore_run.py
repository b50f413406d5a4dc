"""Giving back until nothing is left: round after round, waiting out the safe distance between steps, with progress for people.

Interrupting it is harmless: every round is read from the ledger anew, so the same command goes on where it stopped.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidegate.commands.output import Page
from tidegate.commands.restoration import Giveback, Restoration
from tidegate.errors import Conflict, RetryLater

FRUITLESS_ROUNDS = 5
FIRST_RETRY_SECONDS = 2.0


@dataclass(slots=True)
class RestoreRun:
    """One run on one cluster. `page` gets the progress; `wait_seconds` is how it sleeps."""

    restoration: Restoration
    cluster_id: str
    page: Page
    wait_seconds: Callable[[float], None]
    written: int = 0
    fruitless: int = 0

    def to_the_end(self) -> None:
        """Return when a look finds nothing more to write or to wait for. Raises the last RetryLater after five rounds in vain."""
        while True:
            try:
                if not self._round():
                    return
            except RetryLater as error:
                self._retry(error)

    def _round(self) -> bool:
        """One look and its writes, or one wait; false when there was neither."""
        givebacks = self.restoration.look()
        if any(giveback.decision.writes for giveback in givebacks):
            self._write(givebacks)
            return True
        waits = [giveback.decision.next_pass_in_seconds for giveback in givebacks]
        due = min((wait for wait in waits if wait is not None), default=None)
        if due is None:
            return False
        self.page.say(f"waiting {due:.0f} s before the next safe step, so that no client is muted for long")
        self.wait_seconds(due)
        return True

    def _write(self, givebacks: Sequence[Giveback]) -> None:
        before = self.written
        for giveback in givebacks:
            applied = self.restoration.write(giveback, cluster_id=self.cluster_id)
            self.written += len(applied.done)
            if applied.done:
                entities = "1 entity" if len(applied.done) == 1 else f"{len(applied.done)} entities"
                self.page.say(f"{giveback.policy_key}: wrote {entities}")
            if applied.error is not None:
                raise applied.error
            for refused in applied.refused:
                self.page.say(f"{refused.entity}: not written ({refused.message}); read again")
        if self.written > before:
            self.fruitless = 0
        else:
            self._retry(Conflict("No write was accepted: somebody else keeps writing the same quotas."))

    def _retry(self, error: RetryLater) -> None:
        self.fruitless += 1
        if self.fruitless >= FRUITLESS_ROUNDS:
            raise error
        pause = FIRST_RETRY_SECONDS * 2 ** (self.fruitless - 1)
        self.page.say(f"{error.message} Trying again in {pause:.0f} s.")
        self.wait_seconds(pause)
