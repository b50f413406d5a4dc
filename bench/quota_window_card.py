"""The bytes of a machine's network card, read from the kernel at the start of every second of the wall clock. It judges nothing."""

import json
import subprocess
import threading
import time
from dataclasses import dataclass
from typing import Self

from lab.namespaces import Namespace

_DEVICE = "eth0"
_TIMEOUT_SECONDS = 5


@dataclass(frozen=True, slots=True)
class Carried:
    """All bytes that a card has sent and received since it exists."""

    egress: int
    ingress: int


class Card:
    """A context manager that reads the counters of `namespace`'s card while it is open."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._read: dict[int, Carried] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="card", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._thread.join()

    def carried_in(self, unix_second: int) -> Carried:
        """The bytes of one second that is over; KeyError where a reading is missing."""
        before, after = self._read[unix_second], self._read[unix_second + 1]
        return Carried(after.egress - before.egress, after.ingress - before.ingress)

    def _watch(self) -> None:
        while not self._closing.wait(1 - time.time() % 1):
            at = round(time.time())
            self._read[at] = _counters(self._namespace)


def _counters(namespace: Namespace) -> Carried:
    command = ["ip", "-j", "-s", "-n", namespace.name, "link", "show", _DEVICE]
    listing = subprocess.run(command, check=True, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS)
    counted = json.loads(listing.stdout)[0]["stats64"]
    return Carried(counted["tx"]["bytes"], counted["rx"]["bytes"])
