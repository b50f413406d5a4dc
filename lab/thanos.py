"""Thanos on loopback: a sidecar beside each Prometheus, and one Query that puts them together."""

import json
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab import process
from lab.network import answers, free_port
from lab.packages import GoModule
from lab.process import Process, wait_until

THANOS = GoModule(
    program="thanos",
    directory=Path(__file__).parent / "thanos_binary",
    package="github.com/thanos-io/thanos/cmd/thanos",
    title="Thanos",
    takes="ten minutes and more",
    packages_compiled=1600,
    # Thanos takes one representation of labels for another in memory, so without this one of
    # Prometheus' library a sidecar panics in its first answer.
    tags="slicelabels",
)
_START_TIMEOUT_SECONDS = 60


@dataclass(frozen=True)
class ThanosQuery:
    """The address of its API, and the sidecars in the order of their servers."""

    url: str
    sidecars: Sequence[Process]


@contextmanager
def thanos(
    servers: Sequence[str], directory: Path, *, replica_label: str, strict: bool = False
) -> Iterator[ThanosQuery]:
    """A Query over the Prometheus servers at these addresses, each with its own external labels.

    Series that differ in `replica_label` only are one. `strict` = it goes on asking a sidecar that
    is gone, where it would forget it otherwise.
    """
    binary = str(THANOS.binary())
    with ExitStack() as stack:
        places, sidecars = [], []
        for number, server in enumerate(servers):
            http, grpc = free_port(), free_port()
            argv = [binary, "sidecar", f"--prometheus.url={server}", *_addresses(http, grpc)]
            name = f"thanos-sidecar-{number}"
            sidecars.append(stack.enter_context(_started(name, argv, directory, http)))
            places.append(f"127.0.0.1:{grpc}")
        http, grpc = free_port(), free_port()
        option = "--endpoint-strict" if strict else "--endpoint"
        argv = [binary, "query", *_addresses(http, grpc), f"--query.replica-label={replica_label}"]
        argv += [f"{option}={place}" for place in places]
        query = stack.enter_context(_started("thanos-query", argv, directory, http))
        # before it knows its sidecars it answers every question with nothing
        wait_until(
            lambda: _sidecars(http) == len(servers),
            "Thanos to know its sidecars",
            timeout_seconds=_START_TIMEOUT_SECONDS,
            processes=[query],
        )
        yield ThanosQuery(f"http://127.0.0.1:{http}", sidecars)


def _addresses(http: int, grpc: int) -> list[str]:
    return [f"--http-address=127.0.0.1:{http}", f"--grpc-address=127.0.0.1:{grpc}"]


@contextmanager
def _started(name: str, argv: Sequence[str], directory: Path, http: int) -> Iterator[Process]:
    place = directory / name
    place.mkdir(parents=True)
    with process.start(
        name, argv, log_path=place / "thanos.log", working_directory=place
    ) as running:
        wait_until(
            lambda: answers(f"http://127.0.0.1:{http}/-/ready"),
            f"{name} to be ready",
            timeout_seconds=_START_TIMEOUT_SECONDS,
            processes=[running],
        )
        yield running


def _sidecars(port: int) -> int:
    """How many answer it."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/stores", timeout=5) as answer:
        found = json.load(answer)["data"].get("sidecar") or ()
    return sum(not one.get("lastError") for one in found)
