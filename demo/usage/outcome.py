"""What the end of the demo leaves: the commands that were run, what the tables say, and what witnesses say of the same time."""

from dataclasses import dataclass

from demo.usage.commands import Done
from demo.usage.verdict import usage_checks
from demo.usage.witnesses import Witnesses
from demo.usage_outcome import StoredUsage
from demo.verdict import Check


@dataclass(frozen=True, slots=True)
class UsageOutcome:
    """`stored` and `witnesses` are None where a command failed: then nothing is known of usage, and every bound of it is missed."""

    commands: tuple[Done, ...]
    stored: StoredUsage | None = None
    witnesses: Witnesses | None = None

    @property
    def failed(self) -> Done | None:
        """The command that ended the rest."""
        return next((done for done in self.commands if done.exit_code != 0), None)

    def checks(self) -> list[Check]:
        """Every bound of usage."""
        return usage_checks(self.failed, self.stored, self.witnesses)
