"""The whole operator in virtual time: days full of faults, of which none may leave a trace.

In a process of its own, because virtual time takes the place of the real one in the operator's
modules, and the order of sets has to be the same in each run.
"""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from textwrap import dedent

import pytest

from tests.simulation.plan import FULL, Act, Plan, PolicyPlan, plan_of

CHECKOUT = Path(__file__).parents[2]


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        cwd=CHECKOUT,
        env={**os.environ, "PYTHONHASHSEED": "0"},  # or it starts once more to have that
        capture_output=True,
        text=True,
        check=False,
    )


def test_two_hundred_bad_days_end_well() -> None:
    run = simulate("--seeds", "200", "--jobs", "2")
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
    assert run.stdout.startswith("200 days, 0 failed")


def test_a_seed_repeats_a_day_step_by_step() -> None:
    first, second = simulate("--seed", "7"), simulate("--seed", "7")
    assert first.stdout == second.stdout
    assert len(first.stdout.splitlines()) > 50
    assert "seed 7: all is well" in first.stdout


def test_a_day_among_others_is_the_day_that_it_is_alone() -> None:
    alone = simulate("--seed", "7").stdout.split()[-1]
    among = simulate("--seed", "5", "--seeds", "4", "--digests").stdout
    assert f"seed 7: digest {alone}" in among.splitlines()


def test_each_protection_can_be_taken_out() -> None:
    """Each in a copy of one process: nothing puts them back. One whose code has other words fails."""
    each = """
        import os
        from tests.simulation.without_fix import FIXES

        for name, undo in FIXES.items():
            if not os.fork():
                undo()
                os._exit(0)
            assert os.wait()[1] == 0, name
        print(len(FIXES))
    """
    run = subprocess.run(
        [sys.executable, "-c", dedent(each)],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) > 30


def test_a_defect_is_found_and_its_day_is_made_smaller() -> None:
    run = simulate("--seeds", "100", "--without", "A4")
    assert run.returncode == 1
    assert "between two renewals, though each of its calls was answered" in run.stdout
    assert "acts are enough, with which:" in run.stdout


def test_a_throttle_that_was_never_recorded_is_found() -> None:
    run = simulate("--seeds", "20", "--without", "replication-record")
    assert run.returncode == 1
    assert "which is not in the record" in run.stdout


@pytest.mark.parametrize(
    ("protection", "seed", "violation"),
    [
        ("scram-reencoded", 1, "changed foreign bytes"),
        ("cas-seen", 18, "and what it had decided on was"),
        ("cas-version", 74, "may mute for"),
        ("mute-contract", 1, "s are allowed"),
        ("removal-guard", 1, "and no one confirmed it"),
        ("write-budget", 5, "and the write budget is"),
        ("L0", 45, "below its contract of"),
        ("claim-epoch", 18, "had taken over"),
        ("lease", 400, "without its Lease"),
        ("restored-memory", 20, "was restored"),
        ("holds", 125, "is suspended"),
        ("headroom", 231, "by raises"),
        ("mute-throttle", 175, "s are allowed"),
        ("stale-nic", 258, "samples"),
        ("budget-parent", 61, "left for its members"),
        ("budget-hysteresis", 190, "under steady demand"),
        ("budget-minimum", 1010, "its minimum is"),
        ("A11-window", 42, "and no one confirmed it"),
    ],
)
def test_a_protection_that_is_taken_out_is_missed(
    protection: str, seed: int, violation: str
) -> None:
    """`seed` is little before the first day that misses it, which changes with what days hold."""
    run = simulate("--seed", str(seed), "--seeds", "150", "--brief", "--without", protection)
    assert run.returncode == 1
    assert violation in run.stdout


# what two thousand days show at least: so many may be needed to find a defect
LEAST = {
    "broker dies": 100,
    "call: crash after": 100,
    "call: crash before": 100,
    "call: hang": 100,
    "call: late": 100,
    "call: lost": 100,
    "call: lost answer": 100,
    "call: stop after": 60,
    "call: stop before": 60,
    "clock jump -10 min": 10,
    "clock jump 10 min": 10,
    "clock jump of a minute at most": 40,
    "credentials expire": 20,
    "frozen samples": 50,
    "kill": 50,
    "lease deleted": 50,
    "lease stolen": 50,
    "ledger vanishes": 10,
    "newer version": 50,
    "no controller": 50,
    "outage: brokers": 20,
    "outage: kubernetes": 20,
    "outage: prometheus": 20,
    "outage: zookeeper": 20,
    "pause": 50,
    "restart": 50,
    "second writer": 100,
    "session loss": 50,
    "slow lease": 50,
    "taken over": 20,
    "watch gap": 50,
    "writer inside: before a commit": 100,
    "writer inside: before an attempt": 100,
}
PEOPLE = {
    *("confirm removal", "create override", "create policy", "create tier", "delete member"),
    *("delete override", "delete policy", "delete tier", "edit contract", "edit limit", "load"),
    *("observe", "replace claim", "suspend", "touch tier"),
    *("create budget", "delete budget", "demand", "edit budget", "lose labels"),
    *("rename budget", "reparent budget"),
    *("move", "cancel moves", "throttle by others", "edit replication"),
}


def kind_of(fault: Act) -> str:
    """What the fault is, as in the table above."""
    match fault.kind:
        case "at a call":
            return f"call: {fault.args['what']}"
        case "writer inside":
            return f"writer inside: {fault.args['when']}"
        case "outage":
            return f"outage: {fault.args['system']}"
        case "clock jump":
            minutes = fault.args["by"] / 60.0
            return (
                f"clock jump {f'{minutes:.0f} min' if abs(minutes) > 1 else 'of a minute at most'}"
            )
    return fault.kind


def days(count: int) -> list[Plan]:
    return [plan_of(seed, with_namespaces=True) for seed in range(1, count + 1)]


def test_every_kind_of_fault_comes_often_enough_to_find_what_it_finds() -> None:
    drawn = Counter(kind_of(act) for day in days(2000) for act in day.acts if act.is_fault)
    assert drawn.keys() == LEAST.keys()
    too_few = {kind: count for kind, count in drawn.items() if count < LEAST[kind]}
    assert not too_few


def test_two_hundred_days_have_every_kind_of_fault_and_everything_that_people_do() -> None:
    acts = [act for day in days(200) for act in day.acts]
    assert {kind_of(act) for act in acts if act.is_fault} == LEAST.keys()
    assert {act.kind for act in acts if not act.is_fault} == PEOPLE


def test_two_hundred_days_have_every_size_of_installation() -> None:
    drawn = days(200)
    policies = [policy for day in drawn for policy in day.policies]
    assert {len(day.policies) for day in drawn} == {1, 2, 3}
    assert sum(len(day.clusters) > 1 for day in drawn) >= 20
    assert sum(day.replicas > 1 for day in drawn) >= 20
    assert sum(day.has_login for day in drawn) >= 40
    assert sum(day.deletes_namespace for day in drawn) >= 20
    assert sum("metrics" in policy.spec for policy in policies) >= 15
    assert sum("replication" in policy.spec for policy in policies) >= 40
    assert sum(bool(policy.budgets) for policy in policies) >= 10
    assert sum(may_spend_its_budget(policy) for policy in policies) >= 5


def may_spend_its_budget(policy: PolicyPlan) -> bool:
    """Whether two changes of every member are more than a period allows."""
    members = sum(len(tier["members"]) for tier in policy.tiers.values())
    changes: int = policy.spec.get("writeBudget", {"changes": 300})["changes"]
    return 2 * members > changes


def test_some_days_in_a_hundred_are_full_ones() -> None:
    full = [day for day in days(2000) if day.size is FULL]
    assert 60 <= len(full) <= 140
    assert {(len(day.clusters), day.replicas) for day in full} == {
        *((1, 1), (1, 2), (1, 3), (2, 1), (2, 2))
    }
    assert max(len(day.acts) for day in full) > 20
