"""What the operator writes to the control topic of a prefix: who claimed it, and when to wait.

The control topic is a compacted log that one process at a time writes (`adminapi/log.py`). Of two
queues on one prefix, in one Kubernetes cluster or in two, the one whose claim came first has it,
until that claim is released. Its forwarders read the queue's pace there.

The errors that brokers give about queues are turned into ours here, for topics as well.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from tidegate.errors import Unauthorized, Unreachable, UserActionRequired
from tidegate.kafka.adminapi.client import AdminClient, Fenced, Lost, is_refusal
from tidegate.kafka.adminapi.log import Entry, LedgerLog
from tidegate.kafka.protocol import for_code
from tidegate.queues.names import QueueNames
from tidegate.queues.pace import PACE_KEY, pace_text, parse_pace
from tidegate_logic.queues.shift import Pace
from tidegate_logic.reasons import Reason

CLAIM_VERSION = 1
_CLAIM = "claim/"
# forwarders measure the brokers' clock by records that they write there, under another key
_APPEND_TIMES = {"message.timestamp.type": "LogAppendTime"}
_NOT_AUTHORIZED = {29, 30, 31, 53}


@dataclass(frozen=True, slots=True)
class PrefixClaim:
    """Who claims a prefix: the queue's namespace/name. The lowest `offset` has it."""

    queue_key: str
    offset: int
    version: int = CLAIM_VERSION


@dataclass(slots=True)
class _Control:
    log: LedgerLog
    claims: dict[str, PrefixClaim] = field(default_factory=dict)
    pace: Pace | None = None


class PrefixClaims:
    """The claims of prefixes on one cluster, by the queues' uids. One thread at a time may use it.

    Every call raises Unreachable where Kafka does not answer in time, and Unauthorized with the
    rights that the login lacks. Changes raise LeaseLost once the Lease is lost.
    """

    def __init__(self, client: AdminClient) -> None:
        self._client = client
        self._controls: dict[str, _Control] = {}

    def read(self, names: QueueNames) -> Mapping[str, PrefixClaim]:
        """Every claim of the prefix."""
        control = self._control(names)
        with _of_control(names):
            self._read(control)
        return dict(control.claims)

    def claim(self, names: QueueNames, uid: str, queue_key: str) -> Mapping[str, PrefixClaim]:
        """The claims, with that of this queue, which is written where it is missing."""
        text = json.dumps({"v": CLAIM_VERSION, "queue": queue_key}, separators=(",", ":"))
        return self._settle(names, uid, text.encode())

    def release(self, names: QueueNames, uid: str) -> Mapping[str, PrefixClaim]:
        """Take this queue's claim back; the claims that are left."""
        return self._settle(names, uid, None)

    def pace(self, names: QueueNames) -> Pace | None:
        """What was announced to forwarders last, as of the last call of `read`."""
        return self._control(names).pace

    def announce(self, names: QueueNames, pace: Pace | None) -> None:
        """Announce to forwarders when to wait; None = never."""
        control = self._control(names)
        with _of_control(names):
            control.log.become_writer()
            self._read(control)
            control.log.commit([(PACE_KEY, None if pace is None else pace_text(pace))])
            control.log.give_up()
        control.pace = pace

    def forget(self, names: QueueNames) -> None:
        """Drop what is known of a queue that is gone."""
        self._controls.pop(names.prefix, None)

    def _settle(
        self, names: QueueNames, uid: str, value: bytes | None
    ) -> Mapping[str, PrefixClaim]:
        """Write the claim, or its end, unless it is so already."""
        found = self.read(names)
        if (uid in found) == (value is not None):
            return found
        control = self._control(names)
        with _of_control(names):
            control.log.become_writer()
            self._read(control)
            if (uid in control.claims) != (value is not None):
                control.log.commit([(f"{_CLAIM}{uid}".encode(), value)])
            control.log.give_up()
        self.forget(names)  # it is read as others will read it
        return self.read(names)

    def _control(self, names: QueueNames) -> _Control:
        return self._controls.setdefault(
            names.prefix,
            _Control(LedgerLog(self._client, names.control_topic, settings=_APPEND_TIMES)),
        )

    def _read(self, control: _Control) -> None:
        is_anew, entries = control.log.news()
        if is_anew:
            control.claims.clear()
            control.pace = None
        for entry in entries:
            if entry.key == PACE_KEY:
                control.pace = parse_pace(entry.value)
            key = entry.key.decode("utf-8", "replace")
            if not key.startswith(_CLAIM):
                continue
            uid = key.removeprefix(_CLAIM)
            if entry.value is None:
                control.claims.pop(uid, None)
            else:
                control.claims[uid] = _claim(entry)


def _claim(entry: Entry) -> PrefixClaim:
    """The claim in a record; one that cannot be read counts as one of a newer version."""
    try:
        fields = json.loads(entry.value or b"")
        return PrefixClaim(str(fields["queue"]), entry.offset, int(fields["v"]))
    except (ValueError, TypeError, KeyError):
        return PrefixClaim("an unknown queue", entry.offset, CLAIM_VERSION + 1)


# --- errors ---------------------------------------------------------------------------------------


def rights_needed(prefix: str) -> str:
    """The rights that the policy's login needs for a queue, for a message."""
    return (
        f"CREATE, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS and READ on topics with the "
        f"prefix {prefix}., WRITE on the topic and the transactional id {prefix}.control, and "
        f"DESCRIBE on the group {prefix}.forwarders"
    )


@contextmanager
def lost_is_unreachable() -> Iterator[None]:
    """Raise Unreachable if a request had no answer."""
    try:
        yield
    except Lost as error:
        raise Unreachable(
            Reason.BROKERS_UNREACHABLE,
            f"The brokers did not answer: {error}",
            consequence="They are asked again",
        ) from error


@contextmanager
def _of_control(names: QueueNames) -> Iterator[None]:
    """Errors of the ledger's log in words about a control topic."""
    try:
        with lost_is_unreachable():
            yield
    except Fenced as error:
        raise Unreachable(
            Reason.BROKERS_UNREACHABLE,
            f"Another process writes to {names.control_topic}: {error}",
            consequence="It is tried again",
        ) from error
    except Unauthorized as error:
        raise _unauthorized(f"use the topic {names.control_topic}", names.prefix) from error
    except UserActionRequired as error:
        if error.reason is not Reason.LEDGER_AT_RISK:
            raise
        raise UserActionRequired(
            Reason.TOPIC_TAKEN,
            f"Topic {names.control_topic} exists and is not compacted, so claims of the prefix "
            "would be lost. Nothing about the queue is changed. Set cleanup.policy=compact, or "
            "use another spec.topicPrefix",
        ) from error


def _unauthorized(what: str, prefix: str) -> Unauthorized:
    return Unauthorized(
        f"The brokers did not let Tidegate {what}.",
        advice=f"Grant the policy's user {rights_needed(prefix)}",
    )


def require_rights(code: int, what: str, prefix: str) -> None:
    """Raise for an error that stays until someone grants a right; others pass."""
    if code in _NOT_AUTHORIZED:
        raise _unauthorized(what, prefix)


def require(code: int, what: str, prefix: str, message: str | None = None) -> None:
    """Raise what an error code of a request for `what` means; 0 is none."""
    require_rights(code, what, prefix)
    if not code:
        return
    why = message or for_code(code).__name__
    if is_refusal(code):
        raise UserActionRequired(Reason.INVALID_SPEC, f"The brokers refused to {what}: {why}")
    raise Unreachable(
        Reason.BROKERS_UNREACHABLE,
        f"The brokers did not {what}: {why}",
        consequence="It is tried again",
    )
