"""Whole episodes of the throttle with the client floors that policies have by default: from the
load that begins them to the contracts at their end, round by round.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.goldens.golden import numbers
from tests.unit.controller_logic.plant import (
    MB,
    OUT,
    SimulatedCluster,
    actor,
    in_force_mb,
    simulated_cluster,
    want,
)
from tidegate_logic.model import BrokerLimit
from tidegate_logic.reasons import Reason
from tidegate_logic.throttle.decision import (
    LimitedBy,
    Phase,
    Round,
    StepKind,
    ThrottleStep,
)
from tidegate_logic.throttle.input import ClientFloors
from tidegate_logic.throttle.nic_status import Pressure

INTERVAL_SECONDS = 15


@dataclass(frozen=True)
class Moment:
    """One round of egress, `at_seconds` after the episode began."""

    at_seconds: int
    round: Round

    @property
    def acts(self) -> list[ThrottleStep]:
        return [step for step in self.round.steps if step.kind is not StepKind.HOLD]

    @property
    def reasons(self) -> list[Reason]:
        return [finding.reason for finding in self.round.findings]


class Episode:
    """Plays a cluster and keeps its rounds."""

    def __init__(self, played: SimulatedCluster) -> None:
        self.played = played
        self.moments: list[Moment] = []
        self._began = played.now_seconds

    def until(self, seconds: int) -> None:
        """Play rounds until so long after the beginning."""
        while (at := round(self.played.now_seconds - self._began)) < seconds:
            decision = self.played.run(INTERVAL_SECONDS)
            self.moments.append(Moment(at + INTERVAL_SECONDS, decision.round_of(OUT)))

    def acts(self, *kinds: StepKind) -> Iterator[tuple[int, ThrottleStep]]:
        return (
            (one.at_seconds, step)
            for one in self.moments
            for step in one.acts
            if step.kind in kinds
        )

    def in_force(self, user: str) -> list[tuple[int, float]]:
        """When the user's quota changed and to what, in MB/s."""
        key = next(one.key for one in self.played.actors if one.entity.user == user)
        return [
            (one.at_seconds, step.value / MB)
            for one in self.moments
            for step in one.acts
            if step.key == key
        ]

    def phases(self) -> list[tuple[int, Phase]]:
        """When each phase began."""
        found = [(one.at_seconds, one.round.phase) for one in self.moments]
        return [
            one for place, one in enumerate(found) if not place or one[1] is not found[place - 1][1]
        ]


def promised_mb(played: SimulatedCluster) -> dict[str, float]:
    return {str(one.entity.user): one.promised / MB for one in played.actors}


def test_one_greedy_user_is_lowered_once_to_where_the_limit_is_kept() -> None:
    episode = Episode(simulated_cluster(actor("a", "L3", 200), floors=ClientFloors()))
    want(episode.played, a=150)
    episode.until(60)
    first = episode.moments[0]
    (nic,) = (view.nic for view in first.round.brokers)
    assert (nic.bytes_per_second, nic.limit, nic.pressure) == (150 * MB, 100 * MB, Pressure.OVER)
    assert (nic.hot_samples, nic.samples) == (1, 1)
    (cut,) = first.acts
    assert (cut.kind, cut.value, cut.target) == (StepKind.CUT, 97 * MB, 97 * MB)
    assert cut.in_force == 200 * MB
    assert cut.limited_by is LimitedBy.TARGET
    assert cut.predicted_mute_seconds == pytest.approx(11, abs=0.5)
    assert (cut.relief, cut.collateral) == (53 * MB, 0)
    assert episode.in_force("a") == [(15, 97)]
    assert episode.phases() == [(15, Phase.CUTTING), (60, Phase.RELAXING)]


def test_a_lowered_limit_steps_levels_down_in_order_and_all_return_when_it_is_raised() -> None:
    played = simulated_cluster(
        actor("checkout", "L0", 60),
        actor("orders", "L1", 60, 10),
        actor("search", "L2", 60, 5),
        actor("reports", "L3", 60, 1),
        limit_mb=1000,
        capacity_mb=1250,
        floors=ClientFloors(),
    )
    episode = Episode(played)
    want(played, checkout=25, orders=25, search=25, reports=25)
    episode.until(60)
    assert in_force_mb(played) == promised_mb(played)
    played.limits[1] = BrokerLimit(50 * MB, None, 1250 * MB)
    episode.until(480)
    assert sum(played.sends(one, 1) for one in played.actors) <= 50 * MB
    played.limits[1] = BrokerLimit(1000 * MB, None, 1250 * MB)
    episode.until(900)

    assert episode.phases() == [
        (15, Phase.NORMAL),
        (75, Phase.CUTTING),
        (180, Phase.RELAXING),
        (510, Phase.NORMAL),
    ]
    assert [(at, step.level.value) for at, step in episode.acts(StepKind.CUT)] == [
        *((75, "L3"), (75, "L2"), (90, "L3"), (90, "L2"), (105, "L3"), (105, "L2")),
        *((135, "L1"), (135, "L3")),
    ]
    assert [(at, step.level.value) for at, step in episode.acts(StepKind.RELEASE)] == [
        *((495, "L1"), (495, "L2"), (495, "L3")),
    ]
    assert episode.in_force("checkout") == []
    assert in_force_mb(played) == promised_mb(played)


def test_no_one_is_lowered_for_traffic_of_others_and_quotas_hold_while_the_nic_is_unread() -> None:
    """Broker 2 is filled by replication; later a nightly job fills both, and for three minutes
    broker 1 has no readings.
    """
    played = simulated_cluster(
        actor("payments", "L0", 80, leaders={1: 2, 2: 2}),
        actor("nightly", "L3", 50, 2, leaders={1: 2, 2: 1}),
        brokers=2,
        capacity_mb=125,
        floors=ClientFloors(),
    )
    episode = Episode(played)
    want(played, payments=20, nightly=2)
    episode.until(60)
    played.other[2, OUT] = 85 * MB
    episode.until(240)
    assert [step for one in episode.moments for step in one.acts] == []
    helpless = [one for one in episode.moments if Reason.QUOTA_CANNOT_HELP in one.reasons]
    assert [one.at_seconds for one in helpless] == list(range(90, 241, 15))
    assert {one.round.phase for one in helpless} == {Phase.UNHELPABLE}

    played.other[2, OUT] = 10 * MB
    episode.until(300)
    assert episode.moments[-1].round.phase is Phase.NORMAL
    want(played, nightly=95)
    episode.until(345)
    lowered = in_force_mb(played)
    assert lowered == {"payments": 160, "nightly": 67}
    played.lies[1, OUT] = None
    episode.until(525)
    blind = [one for one in episode.moments if one.round.blind == (1,)]
    assert [one.at_seconds for one in blind] == list(range(405, 526, 15))
    stale = [
        found for one in blind for found in one.round.findings if found.reason is Reason.STALE_DATA
    ]
    assert [found.broker for found in stale] == [1] * len(blind)
    assert numbers(stale[0].message) == {1, 60, 45}  # its age, and from which age on it is stale
    assert in_force_mb(played) == lowered
    del played.lies[1, OUT]
    episode.until(690)
    assert in_force_mb(played) == lowered
    want(played, nightly=5)
    episode.until(1200)
    assert episode.in_force("nightly") == [(315, 67), (765, 100)]
    ((_, back),) = episode.acts(StepKind.RAISE, StepKind.RELEASE)
    assert back.kind is StepKind.RELEASE
    assert episode.in_force("payments") == []
    assert in_force_mb(played) == promised_mb(played)
