"""The errors that Tidegate raises on purpose, by what the caller does about them.

    TidegateError               has a stable reason (tidegate_logic.reasons) and a message
    |-- RetryLater              a system is unreachable or busy: hold, back off, try again
    |   |-- Unreachable         ZooKeeper, brokers, Kubernetes or Prometheus did not answer in time
    |   |-- Conflict            a compare-and-set lost: read again first
    |   |-- LeaseLost           another replica may hold the policy by now: it carries on
    |   |-- OutcomeUnknown      the connection broke during a write: read back first
    |   |   `-- ServerFault     the server answered it with a fault of its own
    |   `-- Incomplete          an answer came, but not all of it
    `-- UserActionRequired      stays wrong until a person changes something
        |-- InvalidResource     a custom resource or a file is not valid
        |-- NotFound            an object that was named does not exist
        |-- Unauthorized        the identity was refused
        |-- ForeignContent      a znode that cannot be read safely
        `-- WriteRefused        wrong cluster, KRaft migration, or another policy's cluster

Only `main.py` turns these into kopf's errors; only `control/` turns them into conditions.
"""

from tidegate_logic.reasons import Reason


class TidegateError(Exception):
    """An error with a stable reason; `str()` of it is a sentence that a person can act on.

    `what` happened and why; `consequence` is what the operator does next, or is to be given;
    `advice` is what a person can do. `message` has all of it, `for_command` no consequence.
    """

    def __init__(
        self, reason: Reason, what: str, *, consequence: str = "", advice: str = ""
    ) -> None:
        self.reason, self.what = reason, what
        self.consequence, self.advice = consequence, advice
        self.message = joined(what, consequence, advice)
        super().__init__(self.message)

    @property
    def more(self) -> dict[str, str]:
        """Consequence and advice, for another error about the same."""
        return {"consequence": self.consequence, "advice": self.advice}

    @property
    def for_command(self) -> str:
        """The message of a command, which does not do what the operator does."""
        return joined(self.what, self.advice)


def joined(*parts: str) -> str:
    """The parts as sentences; one in lower case goes on with the sentence before it."""
    text = ""
    for part in filter(None, parts):
        stop = ("; " if part[0].islower() else ". ") if text else ""
        text = f"{text.removesuffix('.') if stop else text}{stop}{part}"
    return text


class RetryLater(TidegateError):
    """A system is unreachable or busy; quotas stay as they are, and the next pass tries again."""


class Unreachable(RetryLater):
    """A system did not answer within its time limit."""


class Conflict(RetryLater):
    """A compare-and-set lost against another writer; nothing was written."""

    def __init__(self, what: str, reason: Reason = Reason.CONFLICT, **more: str) -> None:
        super().__init__(reason, what, **more)


class LeaseLost(RetryLater):
    """The policy's Lease may be another replica's by now; the request in question was not sent."""

    def __init__(self) -> None:
        super().__init__(
            Reason.NOT_LEADER,
            "The Lease of this policy may be lost, so nothing more is written; the replica that "
            "holds it carries on",
        )


class OutcomeUnknown(RetryLater):
    """The connection broke while a write was under way; it may or may not have happened."""

    def __init__(self, what: str, reason: Reason = Reason.OUTCOME_UNKNOWN, **more: str) -> None:
        super().__init__(reason, what, **more)


class ServerFault(OutcomeUnknown):
    """The server answered a write with a fault of its own, perhaps of this one object."""


class Incomplete(RetryLater):
    """An answer came but was not complete, so it must not be acted on."""


class UserActionRequired(TidegateError):
    """Trying again changes nothing until a person fixes what the message names."""


class InvalidResource(UserActionRequired):
    """A custom resource or a file contradicts itself or its schema.

    `problems` has each wrong field with what must hold there.
    """

    def __init__(
        self,
        what: str,
        reason: Reason = Reason.INVALID_SPEC,
        problems: tuple[tuple[str, str], ...] = (),
        **more: str,
    ) -> None:
        super().__init__(reason, what, **more)
        self.problems = problems


class NotFound(UserActionRequired):
    """An object that was named does not exist."""


class Unauthorized(UserActionRequired):
    """The identity that Tidegate presented was refused."""

    def __init__(self, what: str, reason: Reason = Reason.NOT_AUTHORIZED, **more: str) -> None:
        super().__init__(reason, what, **more)


class ForeignContent(UserActionRequired):
    """A znode holds something that cannot be read safely, so it is not touched."""

    def __init__(self, what: str, reason: Reason = Reason.FOREIGN_CONTENT, **more: str) -> None:
        super().__init__(reason, what, **more)


class LedgerElsewhere(ForeignContent):
    """The ledger has moved to the brokers, and the caller still looks in ZooKeeper."""


class WriteRefused(UserActionRequired):
    """Writing to this cluster would be wrong as a whole: other cluster, migration, other owner."""
