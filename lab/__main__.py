"""The lab's command line: `python -m lab doctor | cache | prepare | up | status | env | down`.

It only reads arguments and prints. Nothing outside the standard library is imported before a
command needs it: `doctor` and `cache` run on a bare machine.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from lab import cache, doctor
from lab.errors import LabError
from lab.kubernetes.tools import HELM, kube_binary
from lab.packages import CLOCK, PROMETHEUS, kafka_jars, unpacked


def prepare(*, kind: bool = False) -> None:
    """For all that needs no Pods, or for kind with brokers and Prometheus beside it instead.

    Raises LabError with what could not be had.
    """
    # needs a library, which a bare machine asking for the doctor lacks
    from lab.browser import chromium
    from lab.kafka import record_archives
    from lab.kraft import record_kraft_archives

    record_archives(kafka_jars())
    record_kraft_archives()
    unpacked(PROMETHEUS)
    unpacked(CLOCK)
    HELM.binary()
    if kind:
        from lab.kubernetes.kind import node_data
        from lab.kubernetes.kind_image import KIND

        KIND.binary()
        node_data()
    else:
        kube_binary()
        chromium()


_PARTS = ("kafka", "kraft", "prometheus", "kube-api", "kind", "zookeeper")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0, or 1 with the reason on stderr."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except LabError as failure:
        print(failure, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; everything that was started is down again", file=sys.stderr)
        return 130


def run_doctor(options: argparse.Namespace) -> int:
    """Say what this machine lacks."""
    return doctor.report(doctor.examine(), quiet=options.quiet)


def run_cache(_: argparse.Namespace) -> int:
    """List what is downloaded and built."""
    entries = cache.entries()
    for entry in entries:
        print(
            f"{entry.name:16} {entry.key}  {entry.files:5} files  {entry.total_bytes / 1e6:7.0f} MB"
        )
    print(f"{sum(entry.total_bytes for entry in entries) / 1e6:.0f} MB in {cache.root()}")
    return 0


def run_prepare(options: argparse.Namespace) -> int:
    """Download and build what is not cached yet, so that no start of a part has to wait for it."""

    prepare(kind=options.cluster == "kind")
    return 0


def run_up(options: argparse.Namespace) -> int:
    """Start a lab that stays up and say where its parts answer."""
    from lab import standing

    _refuse_nonsense(options)
    wanted = standing.Wanted(
        parts=tuple(options.parts or ("kafka",)),
        brokers=options.brokers,
        namespaces=options.namespaces,
        users=tuple(options.users.split(",")) if options.users else (),
        server_properties=dict(setting.split("=", 1) for setting in options.property),
        scrape_interval_seconds=options.scrape_interval_seconds,
    )
    lab = standing.bring_up(options.name, wanted)
    print(json.dumps(lab.addresses, indent=2))
    print(
        f"`python -m lab env {options.name}` prints what a shell needs to use it, `python -m lab "
        f"down {options.name}` ends it.",
        file=sys.stderr,
    )
    return 0


def run_status(options: argparse.Namespace) -> int:
    """Say which labs are up, and which runs of tests or demos are under way."""
    from lab import cache, standing

    labs = standing.everything()
    runs = {path.name: cache.is_owned(path) for path in sorted(cache.runs_root().glob("[!.]*"))}
    if options.output == "json":
        print(
            json.dumps(
                {
                    "labs": {
                        lab.name: {"alive": lab.is_alive(), "addresses": lab.addresses}
                        for lab in labs
                    },
                    "runs": runs,
                },
                indent=2,
            )
        )
        return 0
    for lab in labs:
        print(
            f"{lab.name}: {'up' if lab.is_alive() else 'dead, `python -m lab down` clears it'}: "
            f"{', '.join(lab.wanted.parts)}"
        )
    for name, owned in runs.items():
        print(f"run {name}: {'under way' if owned else 'interrupted; the next start clears it'}")
    if not labs and not runs:
        print("nothing is up")
    return 0


def run_env(options: argparse.Namespace) -> int:
    """Print what a shell evaluates to use a standing lab."""
    from lab import standing

    lab = standing.find(options.name)
    if lab is None or not lab.is_alive() or not lab.addresses:
        raise LabError(
            f"There is no lab named {options.name!r} that is up. `python -m lab up --name "
            f"{options.name}` starts one."
        )
    print(standing.exports(lab.addresses["shell"], standing.directory_of(lab.name) / "bin"))
    return 0


def run_down(options: argparse.Namespace) -> int:
    """End one standing lab, or all, and clear what interrupted runs left."""
    from lab import cache, standing

    labs = [lab for lab in standing.everything() if options.name in (None, lab.name)]
    if options.name is not None and not labs:
        raise LabError(
            f"There is no lab named {options.name!r}. `python -m lab status` lists them."
        )
    for lab in labs:
        standing.take_down(lab)
        print(f"{lab.name} is down")
    cache.sweep()
    return 0


def _refuse_nonsense(options: argparse.Namespace) -> None:
    unknown = [part for part in options.parts if part not in _PARTS]
    if unknown:
        raise LabError(
            f"The lab has no part named {', '.join(unknown)}. Its parts are {', '.join(_PARTS)}."
        )
    if options.brokers < 1:
        raise LabError(
            f"A Kafka of {options.brokers} brokers cannot start. Give --brokers a number from 1 up."
        )
    without_value = [setting for setting in options.property if "=" not in setting]
    if without_value:
        raise LabError(
            f"--property {without_value[0]!r} has no value. Write it as KEY=VALUE, such as "
            f"quota.window.num=2."
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lab",
        description="Real parts on one machine: Kafka, Prometheus, a Kubernetes API.",
    )
    commands = parser.add_subparsers(required=True, metavar="command")
    command = commands.add_parser(
        "doctor", help="say what this machine lacks, and the command that installs it"
    )
    command.add_argument("--quiet", action="store_true", help="print only what is missing")
    command.set_defaults(run=run_doctor)
    commands.add_parser("cache", help="list what is downloaded and built").set_defaults(
        run=run_cache
    )
    command = commands.add_parser("prepare", help="download and build what is not cached yet")
    command.add_argument("cluster", nargs="?", choices=("kind",), help="for Pods too; as root")
    command.set_defaults(run=run_prepare)
    _add_up(commands.add_parser("up", help="start a lab that stays up"))
    command = commands.add_parser("status", help="list the labs that are up")
    command.add_argument("--output", choices=("text", "json"), default="text")
    command.set_defaults(run=run_status)
    command = commands.add_parser(
        "env", help="what a shell evaluates to use one: its commands, and where its parts answer"
    )
    command.add_argument("name", nargs="?", default="lab", help="which one (default: %(default)s)")
    command.set_defaults(run=run_env)
    command = commands.add_parser("down", help="end one lab, or all")
    command.add_argument("name", nargs="?", help="which one; without it, all")
    command.set_defaults(run=run_down)
    return parser


def _add_up(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "parts", nargs="*", metavar="part", help=f"{', '.join(_PARTS)}; without any, kafka"
    )
    command.add_argument(
        "--name",
        default="lab",
        help="to tell labs that run side by side apart (default: %(default)s)",
    )
    command.add_argument("--brokers", type=int, default=3, metavar="N", help="default: %(default)s")
    command.add_argument(
        "--namespaces",
        action="store_true",
        help="each broker in a network namespace with a NIC of its own; needs root",
    )
    command.add_argument(
        "--users",
        default="alice,bob",
        help="SASL PLAIN users, separated by commas (default: %(default)s)",
    )
    command.add_argument(
        "--property",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting for every broker; may be repeated",
    )
    command.add_argument(
        "--scrape-interval-seconds",
        type=int,
        default=1,
        metavar="N",
        help="Prometheus (default: %(default)s)",
    )
    command.set_defaults(run=run_up)


if __name__ == "__main__":
    sys.exit(main())
