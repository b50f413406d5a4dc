"""What a trail adds up to, for each policy and level: cuts, raises, time below contract, worst mutes, and the brokers that caused it.

It counts what was written, not what was only decided. A time that is still running ends with the last line that was read.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tidegate.commands.output import Document
from tidegate.commands.sheet import Column, Sheet
from tidegate.commands.trail import AuditLine, seconds_of

_THROTTLING = frozenset({"Throttled", "Relaxing", "Released"})

Group = tuple[str, str]  # policy, level
_Rate = tuple[str, str]  # entity, key


@dataclass(slots=True)
class Tally:
    """One level of one policy. Mutes are in seconds, None = none was told of. `below` are the rates that are below their contract now."""

    cuts: int = 0
    raises: int = 0
    seconds_below: float = 0.0
    worst_predicted: float | None = None
    worst_observed: float | None = None
    brokers: set[str] = field(default_factory=set)
    below: set[_Rate] = field(default_factory=set)
    since_seconds: float = 0.0

    def write(self, line: AuditLine, at_seconds: float) -> None:
        """One quota that was really written."""
        before, after, contract = (line.get(name) for name in ("from", "to", "contract"))
        if line.get("round") or line.get("reason") in _THROTTLING:
            if isinstance(after, int) and (before is None or after < before):
                self.cuts += 1
                self.worst_predicted = _larger(self.worst_predicted, line.get("predictedMute_s"))
            else:
                self.raises += 1
        is_below = isinstance(after, int) and isinstance(contract, int) and after < contract
        self._mark((str(line.get("entity")), str(line.get("key"))), at_seconds, is_below=is_below)

    def _mark(self, rate: _Rate, at_seconds: float, *, is_below: bool) -> None:
        """Time counts while any rate of the level is below its contract."""
        was_below = bool(self.below)
        self.below = self.below | {rate} if is_below else self.below - {rate}
        if self.below and not was_below:
            self.since_seconds = at_seconds
        if was_below and not self.below:
            self.seconds_below += at_seconds - self.since_seconds

    def end(self, at_seconds: float) -> None:
        if self.below:
            self.seconds_below += at_seconds - self.since_seconds

    def told(self) -> Document:
        return {
            "cuts": self.cuts,
            "raises": self.raises,
            "secondsBelowContract": round(self.seconds_below, 1),
            "worstPredictedMuteSeconds": self.worst_predicted,
            "worstObservedMuteSeconds": self.worst_observed,
            "brokers": sorted(self.brokers),
        }


def summary_of(lines: Sequence[AuditLine]) -> Mapping[Group, Tally]:
    """Every level of every policy of which a line tells, in order."""
    tallies: dict[Group, Tally] = {}
    for line in lines:
        _add(tallies, line)
    for tally in tallies.values():
        tally.end(seconds_of(lines[-1]))
    return dict(sorted(tallies.items()))


def _add(tallies: dict[Group, Tally], line: AuditLine) -> None:
    policy = str(line.get("policy"))

    def of(level: object) -> Tally:
        return tallies.setdefault((policy, str(level)), Tally())

    if line.get("kind") == "write" and line.get("outcome") == "applied" and line.get("level"):
        of(line["level"]).write(line, seconds_of(line))
    if line.get("kind") == "round":
        needy = {f"{broker['id']} {line.get('dir')}" for broker in line.get("brokers", ()) if broker.get("need")}
        for action in (action for action in line.get("actions", ()) if action.get("kind") == "cut"):
            of(action.get("tier")).brokers |= needy
    if line.get("kind") == "effect":
        for entity in line.get("entities", ()):
            tally = of(entity.get("tier"))
            tally.worst_observed = _larger(tally.worst_observed, entity.get("observedMute_s"))


def _larger(one: float | None, other: object) -> float | None:
    known = [value for value in (one, other) if isinstance(value, (int, float))]
    return max(known, default=None)


def summary_document(summary: Mapping[Group, Tally]) -> list[Document]:
    return [{"policy": policy, "level": level, **tally.told()} for (policy, level), tally in summary.items()]


def summary_sheet(summary: Mapping[Group, Tally]) -> Sheet:
    columns = (
        *(Column("Policy"), Column("Level")),
        *(Column(title, right=True) for title in ("Cuts", "Raises", "Below contract", "Predicted mute", "Observed mute")),
        Column("Brokers over", fold=True),
    )
    return Sheet(columns, [_row(*group, tally) for group, tally in summary.items()])


def _row(policy: str, level: str, tally: Tally) -> Sequence[str]:
    mutes = (tally.worst_predicted, tally.worst_observed)
    return (
        *(policy, level, str(tally.cuts), str(tally.raises), f"{tally.seconds_below:.0f} s"),
        *("" if mute is None else f"{mute:.1f} s" for mute in mutes),
        _brokers(tally.brokers),
    )


def _brokers(brokers: Iterable[str]) -> str:
    return ", ".join(sorted(brokers))
