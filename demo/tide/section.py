"""The report's part on experiments 2 and 3: both pictures, both ways side by side, every write. It computes nothing; the figures do."""

from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path
from string import Template

from demo.marks import clock
from demo.tide import figures
from demo.tide.again import left_out_words
from demo.tide.episode import Episode
from demo.tide.length import CLIFF_SECONDS_BETWEEN_LEVELS
from demo.tide.outcome import TideOutcome
from demo.tide.plots import episode_plot
from demo.tide.script import BROKER, BUSINESSES, CONTRACT, HIGH_LIMIT, LIMIT, LOWERED, WANTED, Business
from demo.tide.verdict import FIRST_WRITE_SECONDS, FULL_SECONDS, REST_ABOVE_PERCENT, REST_BELOW_PERCENT, SILENCE_SECONDS, WITHIN_SECONDS

_TEMPLATE = Path(__file__).parent / "section.html.template"


def section_html(tide: TideOutcome) -> str:
    """The whole part, for the report's page."""
    most_muted = max(LOWERED, key=lambda business: business.cliff_mute_seconds)
    return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        broker=BROKER,
        contract=_megabytes(CONTRACT),
        wants=", ".join(f"{business.level} ({business.user}) wants {_megabytes(business.wanted)}" for business in BUSINESSES),
        wanted=_megabytes(WANTED),
        limit=_megabytes(LIMIT),
        high=_megabytes(HIGH_LIMIT),
        between=CLIFF_SECONDS_BETWEEN_LEVELS,
        mute=f"{most_muted.cliff_mute_seconds:.0f}",
        gate_plot=episode_plot(tide.gate),
        cliff=_cliff(tide),
        compared_rows="\n".join(_row(*cells) for cells in _compared(tide)),
        step_rows="\n".join(_steps(tide)),
        source=escape(tide.card_source),
        left_out="" if tide.left_out is None else f"<p>{escape(left_out_words(tide.left_out))}; it is left out.</p>",
    )


def _cliff(tide: TideOutcome) -> str:
    if tide.cliff is None:
        return "<p>The quick demo leaves the published way out, because L3 alone is silent for minutes in it; the full demo plays it.</p>"
    caption = "The same brokers, the same demand, fresh clients. The quotas are at their place after a minute; L3 is silent long after."
    return (
        f'<h3>The published way</h3>\n<figure>\n<div class="wide">{episode_plot(tide.cliff)}</div>\n'
        f"<figcaption>{caption}</figcaption>\n</figure>"
    )


def _compared(tide: TideOutcome) -> Iterator[tuple[str, str, str, str]]:
    """Every line of the table: its name, Tidegate, the published way, the bound."""
    lowest = f"at least {figures.FULL_SHARE:.0%}".replace("%", " %")

    def line(name: str, figure: Callable[[Episode], str], bound: str = "") -> tuple[str, str, str, str]:
        return name, figure(tide.gate), "not played" if tide.cliff is None else figure(tide.cliff), bound

    yield line(
        "limit lowered to first quota written", lambda one: _seconds(figures.seconds_to_first_write(one)), _most(FIRST_WRITE_SECONDS)
    )
    yield line("quotas written until the raise", lambda one: str(sum(len(figures.written(one, each.level)) for each in BUSINESSES)))
    within = f"first write until the card's {figures.CARD_MEAN_SECONDS} s mean is within the limit + 5 %"
    yield line(within, lambda one: _seconds(figures.seconds_until_within(one)), _most(WITHIN_SECONDS))
    for business in reversed(BUSINESSES):
        yield line(f"longest silence of {business.level}", _silence_of(business), _most(SILENCE_SECONDS))
    for business in LOWERED:
        name = f"{business.level} at rest (may drop to {_megabytes(business.throttled or 0)} MB/s)"
        yield line(name, _rest_of(business), f"its quota -{REST_BELOW_PERCENT} % / +{REST_ABOVE_PERCENT} %")
    yield line("the card at rest: mean, and highest single second", _card_at_rest)
    yield line("L0 in its worst 36 s, of what it wants", lambda one: f"{100 * figures.lowest_share(one, 'L0'):.1f} %", lowest)
    yield line("limit raised to everybody's full load", lambda one: _seconds(figures.seconds_until_all_full(one)), _most(FULL_SECONDS))


def _silence_of(business: Business) -> Callable[[Episode], str]:
    def told(episode: Episode) -> str:
        seconds = figures.longest_silence(episode, business.level)
        return f"more than {seconds} s" if figures.is_silent_at_end(episode, business.level) else f"{seconds} s"

    return told


def _card_at_rest(episode: Episode) -> str:
    mean = episode.card.mean(episode.measured_from_seconds, episode.measured_seconds)
    highest = figures.highest_second(episode.card, episode.measured_from_seconds, episode.measured_seconds)
    return f"{mean / 1e6:.1f} / {highest / 1e6:.0f} MB/s"


def _rest_of(business: Business) -> Callable[[Episode], str]:
    def told(episode: Episode) -> str:
        quota = figures.quota_at_rest(episode, business.level)
        return f"{figures.rate_at_rest(episode, business.level) / 1e6:.2f} MB/s<small>quota {_quota(quota)}</small>"

    return told


def _row(name: str, gate: str, cliff: str, bound: str) -> str:
    return f"<tr><td>{escape(name)}</td><td>{gate}</td><td>{cliff}</td><td>{bound}</td></tr>"


def _steps(tide: TideOutcome) -> Iterator[str]:
    """Tidegate's writes and tier states first, then the administrator's writes."""
    for way, episode in (("Tidegate", tide.gate), ("the published way", tide.cliff)):
        if episode is not None:
            yield from (f"<tr><td>{clock(at)}</td><td>{way}</td><td>{escape(text)}</td></tr>" for at, text in _told(episode))


def _told(episode: Episode) -> list[tuple[float, str]]:
    writes = [(step.at_seconds, f"{step.level}: {_quota(step.before)} -> {_quota(step.after)}") for step in episode.quotas]
    states = [(step.at_seconds, f"{step.level} is {step.state}{f' ({step.because})' if step.because else ''}") for step in episode.tiers]
    return sorted([*writes, *states])


def _quota(quota: int | None) -> str:
    return "no quota" if quota is None else f"{quota / 1e6:.2f} MB/s"


def _seconds(seconds: float | None) -> str:
    return "never while it was watched" if seconds is None else f"{seconds:.1f} s"


def _most(seconds: float) -> str:
    return f"at most {seconds:g} s"


def _megabytes(rate: int) -> str:
    return f"{rate / 1e6:g}"
