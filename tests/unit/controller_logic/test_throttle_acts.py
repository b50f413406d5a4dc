"""What is decided again is one act: it is counted and reported once."""

from tests.unit.controller_logic.plant import SimulatedCluster, actor, simulated_cluster, want
from tidegate_logic.throttle.decision import Acts, StepKind, new_acts


def overloaded() -> SimulatedCluster:
    played = simulated_cluster(
        actor("etl", "L3", 60), actor("pay", "L0", 60), limit_mb=50, capacity_mb=200
    )
    want(played, etl=40, pay=25)
    return played


def kinds_of(played: SimulatedCluster, rounds: int, *, is_written: bool) -> list[StepKind]:
    known: Acts = {}
    found: list[StepKind] = []
    for _ in range(rounds):
        steps, known = new_acts(played.run(15, admits=lambda _: is_written), known)
        found += [step.kind for step in steps]
    return found


def test_a_cut_that_is_never_written_is_one_act() -> None:
    assert kinds_of(overloaded(), 8, is_written=False) == [StepKind.CUT]


def test_a_step_further_is_an_act_of_its_own() -> None:
    played = simulated_cluster(
        actor("etl", "L3", 60), actor("pay", "L0", 60), limit_mb=30, capacity_mb=200
    )
    want(played, etl=40, pay=25)
    assert kinds_of(played, 8, is_written=True).count(StepKind.CUT) > 1


def test_the_same_cut_in_another_episode_is_a_new_act() -> None:
    played = overloaded()
    known: Acts = {}
    cuts = 0
    for wanted in (40, 5, 40):
        want(played, etl=wanted, pay=25 if wanted == 40 else 5)
        for _ in range(40 if wanted == 5 else 2):
            steps, known = new_acts(played.run(15), known)
            cuts += sum(step.kind is StepKind.CUT for step in steps)
    assert cuts == 2
