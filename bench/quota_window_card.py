"""The bytes of a machine's network card in each second of the wall clock, as the kernel counts them. It judges nothing."""

import json
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from lab.network import Namespace
from lab.rates import ByteSeries, Sample

_DEVICE = "eth0"
_TIMEOUT_SECONDS = 5
_PAUSE_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Carried:
    """All bytes that a card has sent and received since it exists."""

    egress: int
    ingress: int


class Card:
    """A context manager that reads the counters of `namespace`'s card while it is open.

    Readings come a few times a second, later where the machine is busy elsewhere; between two of them bytes are spread evenly.
    """

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._egress: list[Sample] = []
        self._ingress: list[Sample] = []
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="card", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._thread.join()

    def carried_in(self, unix_seconds: Sequence[int]) -> list[Carried]:
        """The bytes of each of these seconds, which must have been watched from their beginning to their end."""
        egress, ingress = ByteSeries(self._egress), ByteSeries(self._ingress)
        return [Carried(round(egress.mean(second, 1)), round(ingress.mean(second, 1))) for second in unix_seconds]

    def _watch(self) -> None:
        before = _counters(self._namespace)
        while not self._closing.wait(_PAUSE_SECONDS):
            counted, at = _counters(self._namespace), time.time()
            self._egress.append(Sample(at, counted.egress - before.egress))
            self._ingress.append(Sample(at, counted.ingress - before.ingress))
            before = counted


def _counters(namespace: Namespace) -> Carried:
    command = ["ip", "-j", "-s", "-n", namespace.name, "link", "show", _DEVICE]
    listing = subprocess.run(command, check=True, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS)
    counted = json.loads(listing.stdout)[0]["stats64"]
    return Carried(counted["tx"]["bytes"], counted["rx"]["bytes"])
