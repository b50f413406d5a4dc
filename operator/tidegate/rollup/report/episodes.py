"""Throttle episodes of the audit trail: from the first quota below its contract to the return of the last one.

A span is one rate of one client at one quota; an episode is a stretch of time in which a direction always has a span. Kafka's own
mutes are not in it: the tables have those.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tidegate.rollup.report.figures import Episode, EpisodeSpan
from tidegate.rollup.report.request import moment
from tidegate.rollup.terms.sources import Trail, Written

_BEFORE_MS = 60_000  # a pass is a little older than its writes, and the metrics that it read are older still


@dataclass(frozen=True, slots=True)
class _Span:
    """A write and when its quota was replaced; `open_end` = not within the period."""

    write: Written
    quota: int
    begin_ms: int
    end_ms: int
    open_end: bool


def episodes_of(trail: Trail, start_ms: int, end_ms: int) -> tuple[Episode, ...]:
    """Episodes that touch [start, end), cut to it, in order of time."""
    spans = sorted(_spans(trail.written, start_ms, end_ms), key=lambda span: span.begin_ms)
    stretches = [
        stretch for direction in ("fetch", "produce") for stretch in _stretches([one for one in spans if one.write.direction == direction])
    ]
    stretches.sort(key=lambda stretch: (stretch[0].begin_ms, stretch[0].write.direction))
    return tuple(_episode(number, stretch, trail, start_ms=start_ms) for number, stretch in enumerate(stretches, start=1))


def _spans(writes: Sequence[Written], start_ms: int, end_ms: int) -> Iterator[_Span]:
    """Each rate's quotas below its contract. A throttle that the first write replaced was in force since the period began, at least."""
    for history in _by_rate(writes).values():
        first = history[0]
        if first.ends_hold and first.before is not None and first.at_ms > start_ms:
            yield _Span(first, first.before, start_ms, first.at_ms, open_end=False)
        replaced = [*(later.at_ms for later in history[1:]), end_ms]
        for write, until_ms in zip(history, replaced, strict=True):
            if write.is_below and write.after is not None and until_ms > start_ms:
                yield _Span(write, write.after, max(write.at_ms, start_ms), until_ms, open_end=until_ms == end_ms)


def _by_rate(writes: Sequence[Written]) -> Mapping[tuple[str, str, str], Sequence[Written]]:
    found: dict[tuple[str, str, str], list[Written]] = {}
    for write in writes:
        found.setdefault((write.policy, write.entity, write.direction), []).append(write)
    return found


def _stretches(spans: Sequence[_Span]) -> Iterator[Sequence[_Span]]:
    """Spans of one direction that overlap or touch, in order of time."""
    stretch: list[_Span] = []
    end_ms = 0
    for span in spans:
        if stretch and span.begin_ms > end_ms:
            yield stretch
            stretch = []
        stretch.append(span)
        end_ms = max(end_ms, span.end_ms)
    if stretch:
        yield stretch


def _episode(number: int, spans: Sequence[_Span], trail: Trail, *, start_ms: int) -> Episode:
    begin_ms, end_ms, direction = spans[0].begin_ms, max(span.end_ms for span in spans), spans[0].write.direction
    writes = [one for one in trail.written if one.direction == direction and begin_ms <= one.at_ms <= end_ms and _throttles(one)]
    over = [one for one in trail.over if one.direction == direction and begin_ms - _BEFORE_MS <= one.at_ms <= end_ms]
    muted = [one.seconds for one in trail.muted if one.direction == direction and begin_ms <= one.at_ms <= end_ms + _BEFORE_MS]
    cuts = [write for write in writes if write.is_cut]
    return Episode(
        number=number,
        direction=direction,
        begin=moment(begin_ms),
        end=moment(end_ms),
        seconds=(end_ms - begin_ms) / 1000,
        open_begin=begin_ms == start_ms,
        open_end=any(span.open_end for span in spans),
        levels=", ".join(sorted({span.write.level for span in spans})),
        members=len({(span.write.policy, span.write.entity) for span in spans}),
        cuts=len(cuts),
        raises=len(writes) - len(cuts),
        lowest_fraction=min(_fraction(span) for span in spans),
        predicted_mute_seconds=max((one.predicted_mute_seconds for one in cuts if one.predicted_mute_seconds is not None), default=None),
        observed_mute_seconds=max(muted, default=None),
        brokers=", ".join(str(broker) for broker in sorted({one.broker for one in over})),
        most_over_rate=max((one.over_rate for one in over if one.over_rate is not None), default=None),
        spans=tuple(_figures(number, span) for span in sorted(spans, key=_place)),
    )


def _throttles(write: Written) -> bool:
    return write.is_below or write.was_below


def _fraction(span: _Span) -> float:
    return span.quota / span.write.contract if span.write.contract else 0.0


def _place(span: _Span) -> tuple[str, str, int]:
    return span.write.level, span.write.entity, span.begin_ms


def _figures(number: int, span: _Span) -> EpisodeSpan:
    write = span.write
    return EpisodeSpan(
        episode=number,
        entity=write.entity,
        member=write.member or write.entity,
        tier=write.tier,
        level=write.level,
        begin=moment(span.begin_ms),
        end=moment(span.end_ms),
        quota=span.quota,
        contract=write.contract or 0,
        fraction=_fraction(span),
    )
