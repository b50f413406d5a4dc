"""`python -m bench.scenarios DIR`: the throttle against the control study's reference, on the study's own plant and scenarios.

DIR holds the study's simulator (`ctlbench.py` and what it imports; it needs numpy, the product does not). Each scenario is played
with the study's reference (`sized`) and with `controller_logic.throttle.throttle`, and the means are compared: seconds and bytes
over the limit, worst mute, backlog of L1, writes per hour. Exit code 1 where one of them is more than 1.1 times the reference's
or a rule is broken, 2 where DIR is no simulator.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from multiprocessing import Pool
from pathlib import Path
from typing import Any

from bench.scenarios_adapter import Adapter

Row = dict[str, Any]
ALLOWED = 1.1
_OURS = "tidegate"
_SHOWN = (
    *("over_s", "over_GB", "mute_s", "L1_GB", "L2_GB", "L3_GB"),
    *("tier_changes_h", "writes_h", "writes_15min", "inversion_s", "collateral_GB"),
)
_BOUND = ("over_s", "over_GB", "mute_s", "L1_GB", "writes_h")


def main() -> int:
    """Play, print, compare."""
    options = _options()
    if not (options.simulator / "ctlbench.py").is_file():
        print(f"{options.simulator} holds no ctlbench.py, so nothing was played", file=sys.stderr)
        return 2
    study = _study(options.simulator, options.tick)
    names = options.scenarios or list(study.SCEN)
    if unknown := [name for name in names if name not in study.SCEN]:
        print(f"there is no scenario {', '.join(unknown)}; there are {', '.join(study.SCEN)}", file=sys.stderr)
        return 2
    rows = _play_all(options, names)
    kept = _report(rows)
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return 0 if kept else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.scenarios", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("simulator", type=Path, metavar="DIR")
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help="all of them when none is named")
    parser.add_argument("--tick", type=int, default=15, help="seconds between scrapes and rounds (15)")
    parser.add_argument("--seeds", type=int, default=1, help="play each scenario so many times")
    parser.add_argument("--controllers", default=f"sized,{_OURS}", help="comma separated; any of the study's, and tidegate")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", type=Path, default=None, help="write every figure there")
    return parser.parse_args()


def _study(simulator: Path, tick: int) -> Any:
    """The study's module, with our controller among its own."""
    if str(simulator) not in sys.path:
        sys.path.insert(0, str(simulator))
    study = import_module("ctlbench")
    study.__dict__["TICK"] = tick
    study.CTL[_OURS] = Adapter
    return study


def _play_all(options: argparse.Namespace, names: Sequence[str]) -> list[Row]:
    jobs = [
        (str(options.simulator), options.tick, name, tuple(options.controllers.split(",")), seed)
        for name in names
        for seed in range(options.seeds)
    ]
    rows: list[Row] = []
    with Pool(options.processes) as pool:
        for played in pool.imap(_play, jobs):
            for row in played:
                print(_line(row), flush=True)
            rows.extend(played)
    return rows


def _play(job: tuple[str, int, str, tuple[str, ...], int]) -> list[Row]:
    simulator, tick, name, controllers, seed = job
    study = _study(Path(simulator), tick)
    _, _, measured = study.compare((name, [*controllers], seed))
    return [_row(name, seed, controller, measured[controller]) for controller in controllers]


def _row(scenario: str, seed: int, controller: str, measured: Mapping[str, Any]) -> Row:
    giga = 1000.0
    return {
        "scenario": scenario,
        "seed": seed,
        "controller": controller,
        "over_s": measured["over_s"],
        "over_GB": measured["over_MB"] / giga,
        "mute_s": measured["mute"],
        "L1_GB": measured["regret"][1] / giga,
        "L2_GB": measured["regret"][2] / giga,
        "L3_GB": measured["regret"][3] / giga,
        "tier_changes_h": measured["tier_changes_h"],
        "writes_h": measured["writes_h"],
        "writes_15min": measured["w15"],
        "inversion_s": measured["inv_s"],
        "collateral_GB": measured["coll"] / giga,
        "held_at_end": measured["held_end"],
        "broken": sum(measured["viol"].values()),
    }


def _line(row: Row) -> str:
    figures = " ".join(f"{row[name]:>9.1f}" for name in _SHOWN)
    return f"{row['scenario']:<10} {row['seed']} {row['controller']:<14} {figures}  held {row['held_at_end']} broken {row['broken']}"


def _report(rows: Sequence[Row]) -> bool:
    """Print the means, and say whether every bound was kept."""
    means = {name: _means([row for row in rows if row["controller"] == name]) for name in dict.fromkeys(row["controller"] for row in rows)}
    print(f"{'mean':<27} " + " ".join(f"{name:>9.9}" for name in _SHOWN))
    for name, mean in means.items():
        print(f"{name:<27} " + " ".join(f"{mean[one]:>9.2f}" for one in _SHOWN) + f"  broken {mean['broken']:.0f}")
    if not {"sized", _OURS} <= means.keys():
        return True
    ours, theirs = means[_OURS], means["sized"]
    for one in _BOUND:
        print(f"{one}: {ours[one]:.2f} against {theirs[one]:.2f}, {_ratio(ours[one], theirs[one]):.2f} times")
    return ours["broken"] == 0 and all(ours[one] <= ALLOWED * theirs[one] for one in _BOUND)


def _ratio(ours: float, theirs: float) -> float:
    return ours / theirs if theirs else (0.0 if not ours else float("inf"))


def _means(rows: Sequence[Row]) -> dict[str, float]:
    mean = {name: sum(row[name] for row in rows) / len(rows) for name in _SHOWN}
    return mean | {"mute_s": max(row["mute_s"] for row in rows), "broken": float(sum(row["broken"] for row in rows))}


if __name__ == "__main__":
    sys.exit(main())
