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

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate_logic.reasons import Reason

if TYPE_CHECKING:  # `tidegate --help` does without it
    import ssl


class TidegateError(Exception):
    """An error with a stable reason; `str()` of it is a sentence that a person can act on."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class RetryLater(TidegateError):
    """A system is unreachable or busy; quotas stay as they are, and the next pass tries again."""


class Unreachable(RetryLater):
    """A system did not answer within its time limit."""


class Conflict(RetryLater):
    """A compare-and-set lost against another writer; nothing was written."""

    def __init__(self, message: str, reason: Reason = Reason.CONFLICT) -> None:
        super().__init__(reason, message)


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

    def __init__(self, message: str, reason: Reason = Reason.OUTCOME_UNKNOWN) -> None:
        super().__init__(reason, message)


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
        message: str,
        reason: Reason = Reason.INVALID_SPEC,
        problems: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(reason, message)
        self.problems = problems


class NotFound(UserActionRequired):
    """An object that was named does not exist."""


class Unauthorized(UserActionRequired):
    """The identity that Tidegate presented was refused."""

    def __init__(self, message: str, reason: Reason = Reason.NOT_AUTHORIZED) -> None:
        super().__init__(reason, message)


class ForeignContent(UserActionRequired):
    """A znode holds something that cannot be read safely, so it is not touched."""

    def __init__(self, message: str, reason: Reason = Reason.FOREIGN_CONTENT) -> None:
        super().__init__(reason, message)


class LedgerElsewhere(ForeignContent):
    """The ledger has moved to the brokers, and the caller still looks in ZooKeeper."""


class WriteRefused(UserActionRequired):
    """Writing to this cluster would be wrong as a whole: other cluster, migration, other owner."""


_ANOTHER_NAME = (62, 64)  # OpenSSL's codes of a refused certificate: a host's name, an address
_EXPIRED, _NOT_YET_VALID = 10, 9
_UNKNOWN_SIGNER = (2, 18, 19, 20, 21)


def refused_certificate(error: ssl.SSLCertVerificationError) -> str:
    """Why the certificate that a server showed was refused, and what to do about it."""
    match error.verify_code:
        case code if code in _ANOTHER_NAME:
            name = error.verify_message.rpartition(" for ")[2].strip("'.")
            return (
                f"its certificate is valid, but not for {name}. Use a name that the certificate "
                f"has, or have {name} added to its subject alternative names"
            )
        case code if code in _UNKNOWN_SIGNER:
            return (
                "its certificate is signed by none of trustedCertificates (where these are unset: "
                "by no authority of this machine)"
            )
        case code if code in (_EXPIRED, _NOT_YET_VALID):
            when = "has expired" if code == _EXPIRED else "is not valid yet"
            return f"its certificate {when}, or the clock of this machine is wrong"
    return f"its certificate is refused: {error.verify_message}"
