"""An episode of experiments 2 and 3 made by arithmetic: everybody gets the smaller of what they want and their quota."""

from collections.abc import Callable, Mapping

import pytest

from demo.episode import Playing, ThrottlingOutcome, TierStep
from demo.script import BUSINESSES, CONTRACT, FULL_THROTTLING, LEVELS, LIMIT, ThrottlingLength
from lab.episodes import Business
from lab.load import ProcessorShare
from lab.quota_watch import QuotaWrite
from lab.rates import ByteSeries, Sample

BEGAN = 1_700_000_000.0
LIMITED, FIRST_WRITE, MEASURED, RAISED, ENDED = (BEGAN + seconds for seconds in (24, 30, 150, 190, 290))
# Level -> (seconds after the first write, quota); the last value is the throttled rate.
LADDER: Mapping[str, tuple[tuple[int, int], ...]] = {
    "L3": ((0, 12_000_000), (30, 6_000_000), (60, 3_000_000), (90, 1_000_000)),
    "L2": ((0, 12_000_000), (30, 5_000_000)),
    "L1": ((30, 12_000_000), (60, 10_000_000)),
}

PlayedEpisode = Callable[..., Playing]
PlayedThrottling = Callable[..., ThrottlingOutcome]


@pytest.fixture(scope="session")
def played_episode() -> PlayedEpisode:
    """An episode of the ladder above; see `_episode` for what can be spoilt in it."""
    return _episode


@pytest.fixture(scope="session")
def played_throttling() -> PlayedThrottling:
    """Both ways, the published one with L3 silent for 250 s."""

    def throttling(length: ThrottlingLength = FULL_THROTTLING, **spoilt: object) -> ThrottlingOutcome:
        cliff = _episode(silence={"L3": 250}, states=False) if length.plays_cliff else None
        return ThrottlingOutcome(length, _episode(**spoilt), cliff, "the NIC of the broker's own namespace")  # type: ignore[arg-type]

    return throttling


def _episode(
    *,
    ladder: Mapping[str, tuple[tuple[int, int], ...]] = LADDER,
    silence: Mapping[str, int] | None = None,
    share: Mapping[str, float] | None = None,
    back_after_seconds: int = 5,
    states: bool = True,
) -> Playing:
    """`silence` is level -> seconds without a byte from the first write on, `share` level -> of what it should get."""
    quotas = tuple(step for business in BUSINESSES for step in _steps(business, ladder, back_after_seconds))
    gets = {
        business.user: _series(business, quotas, (silence or {}).get(business.level, 0), (share or {}).get(business.level, 1.0))
        for business in BUSINESSES
    }
    seconds = range(1, int(ENDED - BEGAN) + 3)
    nic = ByteSeries(Sample(BEGAN + at, round(sum(one.mean(BEGAN + at - 1, 1) for one in gets.values()))) for at in seconds)
    return Playing(
        limit=LIMIT,
        businesses=BUSINESSES,
        began_seconds=BEGAN,
        limited_at_seconds=LIMITED,
        measured_from_seconds=MEASURED,
        measured_seconds=36,
        raised_at_seconds=RAISED,
        ended_seconds=ENDED,
        moved=gets,
        nic=nic,
        writes=quotas,
        tiers=tuple(TierStep(BEGAN, level, "Contract", "") for level in LEVELS) if states else (),
        processor=ProcessorShare(busy_percent=70.0, stolen_percent=3.0),
    )


def _steps(business: Business, ladder: Mapping[str, tuple[tuple[int, int], ...]], back_after_seconds: int) -> list[QuotaWrite]:
    written = [(BEGAN - 5, CONTRACT), *((FIRST_WRITE + after, quota) for after, quota in ladder.get(business.level, ()))]
    if business.level in ladder:
        written.append((RAISED + back_after_seconds, CONTRACT))
    befores = [None, *(quota for _, quota in written)]
    return [QuotaWrite(at, business.user, before, after) for before, (at, after) in zip(befores, written, strict=False)]


def _series(business: Business, quotas: tuple[QuotaWrite, ...], silent_seconds: int, share: float) -> ByteSeries:
    steps = [step for step in quotas if step.user == business.user]

    def rate(at: float) -> int:
        if FIRST_WRITE <= at < FIRST_WRITE + silent_seconds:
            return 0
        quota = [step.after for step in steps if step.at_seconds <= at][-1]
        return round(share * min(business.demand, quota or business.demand))

    seconds = range(int(ENDED - BEGAN) + 3)
    return ByteSeries([Sample(BEGAN, 0), *(Sample(BEGAN + second + 1, rate(BEGAN + second)) for second in seconds)])
