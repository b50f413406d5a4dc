"""What an episode held back from a business, by the quotas that stood in ZooKeeper and what its client got before the first of them.

The tables count against the rate just before the first cut, too: what was promised beyond it was not wanted.
"""

from demo.episode import Episode
from demo.tide.figures import written
from lab.rates import SAWTOOTH_SECONDS


def held_back_by_quotas(episode: Episode, level: str) -> float:
    """Bytes by which the quotas in force were below the rate before the first of them; 0 for who was never cut."""
    cuts = written(episode, level)
    if not cuts:
        return 0.0
    before = rate_before(episode, level)
    steps = [step for step in episode.quotas if step.level == level and step.at_seconds >= cuts[0].at_seconds]
    ends = [*(step.at_seconds for step in steps[1:]), episode.ended_seconds]
    return sum(max(0.0, before - (step.after or before)) * (end - step.at_seconds) for step, end in zip(steps, ends, strict=True))


def rate_before(episode: Episode, level: str) -> float:
    """What arrived, in bytes per second, in the twelve seconds before the first cut."""
    first = written(episode, level)[0].at_seconds
    return episode.arrived[level].mean(first - SAWTOOTH_SECONDS, SAWTOOTH_SECONDS)
