"""`python -m tests.simulation --seed 1 --seeds 200` plays bad days of the whole operator.

With one seed it prints every step. A day that fails is played again with fewer acts, until each
that is left is needed.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import sys
import time
import traceback
from dataclasses import replace

from tests.simulation import process
from tests.simulation.plan import Plan, plan_of
from tests.simulation.run import Outcome, play, smaller
from tests.simulation.without_fix import FIXES


def main() -> int:
    """Play the days and print those that fail; exit code 1 when one did."""
    chosen = _arguments()
    began_at = time.perf_counter()
    if chosen.seeds == 1:
        _prepare(chosen.without)
        return _one_day(chosen.seed)
    seeds = range(chosen.seed, chosen.seed + chosen.seeds)
    failed: list[int] = []
    played, virtual_seconds, spent_seconds = 0, 0.0, 0.0
    with multiprocessing.Pool(chosen.jobs, _prepare, (chosen.without,)) as pool:
        for outcome, seconds in pool.imap(_played, seeds):
            played, spent_seconds = played + 1, spent_seconds + seconds
            virtual_seconds += outcome.seconds
            if chosen.digests:
                print(f"seed {outcome.plan.seed}: digest {outcome.digest}", flush=True)
            if outcome.violations:
                failed.append(outcome.plan.seed)
                print(f"seed {outcome.plan.seed}: {outcome.violations[0]}", flush=True)
                if not chosen.go_on:
                    break
    if failed and not chosen.go_on and not chosen.brief:
        _prepare(chosen.without)  # only now: those who play are copies, and nothing is edited twice
        _one_day(failed[0])
    print(
        f"{played} days, {len(failed)} failed; {virtual_seconds / 3600:.1f} h of virtual time in "
        f"{time.perf_counter() - began_at:.0f} s, {played / spent_seconds:.1f} days a second of one core"
    )
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes play")
    parser.add_argument("--without", choices=["", *FIXES], default="", help="the fix to take out")
    parser.add_argument("--digests", action="store_true", help="print what stands for each day")
    parser.add_argument("--brief", action="store_true", help="name a day that fails, and no more")
    parser.add_argument("--go-on", action="store_true", help="play all, whichever fail")
    return parser.parse_args()


def _prepare(without: str) -> None:
    process.install()
    if without:
        FIXES[without]()
    # what is loaded stays; a day leaves little behind, so the collector comes by seldom
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 20, 100)


def _plan(seed: int) -> Plan:
    return plan_of(seed, with_namespaces=process.LEASES_ARE_SAFE)


def _played(seed: int) -> tuple[Outcome, float]:
    began_at = time.process_time()
    outcome = play(_plan(seed))
    return replace(outcome, trace=(), tracebacks=()), time.process_time() - began_at


def _one_day(seed: int) -> int:
    """Print every step of a day, and of a day that fails the acts that it takes."""
    outcome = play(_plan(seed))
    print("\n".join(outcome.trace))
    for error in outcome.tracebacks:
        if error is not None:
            traceback.print_exception(error, file=sys.stdout)
    if not outcome.violations:
        print(f"seed {seed}: all is well; {len(outcome.trace)} steps, digest {outcome.digest}")
        return 0
    least = smaller(outcome)
    print(f"seed {seed} fails; digest {outcome.digest}:")
    for violation in outcome.violations:
        print(f"  {violation}")
    print(f"{len(least.plan.acts)} of its {len(outcome.plan.acts)} acts are enough, with which:")
    print(f"  {least.violations[0]}")
    for act in least.plan.acts:
        print(f"  {act}")
    return 1


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is a part of a run
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])
    sys.exit(main())
