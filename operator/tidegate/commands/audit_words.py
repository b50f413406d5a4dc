"""An audit line as one sentence for people. Every number comes from the line; one that a line does not tell is not made up."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from controller_logic.model import BYTE_RATE_KEYS, QuotaKey
from controller_logic.quotas.values import KEY_WORDS, quota_words
from tidegate.commands.trail import AuditLine

_UNKNOWN = "unknown"
_LIMITED_BY = {
    "target": "as far as it should go",
    "maxMute": "as far as the longest mute allows",
    "floor": "as far as its clients bear",
    "headroom": "as far as there is room",
    "contract": "the whole contract",
    "ramp": "no more than double at a time",
}
_ENDS = {"applied": "", "wouldWrite": " (mode Observe: not written)"}


def line_words(line: AuditLine) -> str:
    """What happened, without when and for which policy. A kind of a later version is shown as it stands."""
    words = _WORDS.get(str(line.get("kind")))
    return words(line) if words is not None else ", ".join(f"{name}={value}" for name, value in line.items())


def _round(line: AuditLine) -> str:
    parts = [f"{line.get('dir')} {line.get('phase')}", *_broker_parts(line), *_blind_parts(line)]
    parts += [_action(action) for action in line.get("actions", ())]
    parts += [f"{finding['reason']}: {finding['message']}" for finding in line.get("conditions", ())]
    return "; ".join(parts)


def _broker_parts(line: AuditLine) -> Iterator[str]:
    """The brokers that need something; all others would only hide them."""
    for broker in line.get("brokers", ()):
        if broker.get("need"):
            yield f"broker {broker['id']} carries {_rate(broker.get('nic'))} of {_rate(broker.get('threshold'))}"


def _blind_parts(line: AuditLine) -> Iterator[str]:
    if line.get("blind"):
        yield f"nothing usable of broker {', '.join(str(broker) for broker in line['blind'])}"


def _action(action: Mapping[str, Any]) -> str:
    what, mute = f"{action.get('kind')} {action.get('entity')} ({action.get('tier')})", action.get("predictedMute_s") or 0
    if action.get("waits_s") is not None:
        return f"{what} in {action['waits_s']:.0f} s: it was lowered a moment ago"
    told = [_LIMITED_BY[action["limitedBy"]]] if action.get("limitedBy") in _LIMITED_BY else []
    told += [f"mute up to {mute:.0f} s"] if mute else []
    change = f"{_rate(action.get('from'))} -> {_rate(action.get('to'))}"
    return f"{what} {change}" + (f", {', '.join(told)}" if told else "")


def _write(line: AuditLine) -> str:
    outcome = str(line.get("outcome"))
    end = _ENDS.get(outcome, f" {outcome}: {line.get('why', '')} {line.get('message', '')}".rstrip())
    return f"{line.get('entity')} {_change(line)}, {line.get('reason')}{_terms(line)}{end}"


def _change(line: AuditLine) -> str:
    key = _key(line)
    if key is None:
        return "only the ledger"
    return f"{KEY_WORDS[key]} {_value(key, line.get('from'))} -> {_value(key, line.get('to'))}"


def _terms(line: AuditLine) -> str:
    key, mute = _key(line), line.get("predictedMute_s") or 0
    told = [str(line["level"])] if line.get("level") else []
    told += [f"contract {_value(key, line['contract'])}"] if key is not None and line.get("contract") is not None else []
    told += [f"mute up to {mute:.0f} s"] if mute else []
    return f" ({', '.join(told)})" if told else ""


def _effect(line: AuditLine) -> str:
    brokers = [
        f"broker {broker['id']} {_rate(broker.get('nicBefore'))} -> {_rate(broker.get('nicAfter'))} of {_rate(broker.get('threshold'))}"
        for broker in line.get("brokers", ())
    ]
    return "; ".join([f"{line.get('dir')} after {line.get('seconds', 0):.0f} s", *brokers, *map(_effect_on, line.get("entities", ()))])


def _effect_on(entity: Mapping[str, Any]) -> str:
    rates = f"{_rate(entity.get('rateBefore'))} -> {_rate(entity.get('rateAfter'))}"
    mutes = f"mute {_seconds(entity.get('observedMute_s'))} of at most {_seconds(entity.get('predictedMute_s'))}"
    told = [f"{entity.get('entity')} sends {rates}"]
    told += [mutes] if entity.get("kind") == "cut" else []
    told += ["changed again since"] if entity.get("changedSince") else []
    return ", ".join(told)


def _hold(line: AuditLine) -> str:
    if line.get("state") == "begins":
        return f"{line.get('reason')} begins: {line.get('message')}"
    return f"{line.get('reason')} ends after {line.get('seconds', 0):.0f} s"


def _override(line: AuditLine) -> str:
    whom = ", ".join(line.get("entities", ()))
    return f"override {line.get('override')} {line.get('state')} for {whom}, until {line.get('until')}: {line.get('why')}"


def _key(line: AuditLine) -> QuotaKey | None:
    return QuotaKey(line["key"]) if line.get("key") in set(QuotaKey) else None


def _value(key: QuotaKey, value: object) -> str:
    if value is None:
        return "unlimited"
    return _rate(value) if key in BYTE_RATE_KEYS else quota_words(key, str(value))


def _rate(value: object) -> str:
    return f"{value / 1e6:.1f} MB/s" if isinstance(value, (int, float)) else _UNKNOWN if value is None else str(value)


def _seconds(value: object) -> str:
    return f"{value:.1f} s" if isinstance(value, (int, float)) else _UNKNOWN


_WORDS: Mapping[str, Callable[[AuditLine], str]] = {
    "round": _round,
    "write": _write,
    "effect": _effect,
    "hold": _hold,
    "override": _override,
}
KINDS = tuple(_WORDS)
