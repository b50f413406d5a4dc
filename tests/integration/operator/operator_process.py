"""The operator as a process of its own, started by its command line and ended by signals."""

from __future__ import annotations

import json
import os
import re
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from lab.cache import root as cache_directory
from lab.kubernetes.api import KubeApi
from lab.operator import operator_command
from lab.process import Process, patience, start, wait_until
from tests.integration.operator.installation import LEASE_NAMESPACE


class OperatorProcess:
    """`tidegate run` on one namespace, with more `options`, started by the command `under` if there
    is one. Tests read its log, so that they wait for events and not for a time.
    """

    def __init__(
        self,
        api: KubeApi,
        namespace: str,
        directory: Path,
        *,
        name: str = "operator",
        under: Sequence[str] = (),
        options: Sequence[str] = (),
    ) -> None:
        self._process: Process = start(
            name,
            [
                *under,
                *operator_command(api.kubeconfig, namespace, lease_namespace=LEASE_NAMESPACE),
                *options,
            ],
            log_path=directory / f"{name}.log",
            # Tests start it many times; compiling its libraries each time would take longer than
            # all the rest.
            environment={"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(cache_directory() / "bytecode")},
            niceness=0,  # what a test waits for most is its start
        )  # fmt: skip

        self.is_stopped = False

    def __enter__(self) -> OperatorProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()

    @cached_property
    def identity(self) -> str:
        """The holder identity that it writes to a Lease."""
        return str(self.wait_for("Operator started")["identity"])

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_running(self) -> bool:
        return self._process.is_running()

    def kill(self) -> None:
        """Send SIGKILL: the process ends at once, in the middle of its work."""
        self._process.kill()

    def terminate(self) -> None:
        """Send SIGTERM. `exit_code` waits for the end."""
        os.kill(self._process.pid, signal.SIGTERM)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Nothing of it runs meanwhile, so what happens in between it sees at once."""
        self.stop()
        try:
            yield
        finally:
            self.go_on()

    def stop(self) -> None:
        """Send SIGSTOP: nothing of it runs until `go_on`."""
        os.kill(self._process.pid, signal.SIGSTOP)
        self.is_stopped = True

    def go_on(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)
        self.is_stopped = False

    def exit_code(self, timeout_seconds: float) -> int:
        return self._process.wait(timeout_seconds)

    def wait_for(self, event: str, *, timeout_seconds: float = 60.0) -> dict[str, Any]:
        """The first log line of this event, as soon as it is there."""
        return wait_until(
            lambda: next((line for line in self.lines() if line["event"] == event), None),
            f"the log line {event!r}",
            timeout_seconds=timeout_seconds,
            processes=[self._process],
            poll_seconds=0.02,
        )  # type: ignore[return-value]

    def wait_for_a_pass(self) -> None:
        """Return once it has ended a pass: then it holds the Lease and has handled what it
        found.
        """
        wait_until(
            lambda: self.metrics().get("tidegate_passes_total", 0.0) > 0,
            "a pass",
            timeout_seconds=60.0,
            processes=[self._process],
        )

    def lines(self) -> Iterator[dict[str, Any]]:
        """All complete lines of its log so far."""
        text = self._process.log_path.read_text(errors="replace")
        for line in text[: text.rfind("\n") + 1].splitlines():
            if line.startswith("{"):
                yield json.loads(line)

    def liveness(self) -> int:
        """The HTTP status that the kubelet would get. The address is logged before the server
        listens, so this waits for an answer.
        """
        endpoint = self.wait_for("Liveness")["endpoint"]
        return wait_until(
            lambda: _status(endpoint),
            "an answer of the probe",
            timeout_seconds=30.0,
            processes=[self._process],
        )

    def metrics(self) -> dict[str, float]:
        """Every sample by its name, summed over its labels."""
        totals: dict[str, float] = {}
        for sample in (
            sample
            for family in text_string_to_metric_families(self._scrape())
            for sample in family.samples
        ):
            totals[sample.name] = totals.get(sample.name, 0.0) + sample.value
        return totals

    def metric(self, name: str, **labels: str) -> float:
        """The samples of this name that have these labels, summed."""
        return sum(
            sample.value
            for family in text_string_to_metric_families(self._scrape())
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def exposed_names(self) -> frozenset[str]:
        """Every metric that is declared, with or without samples."""
        return frozenset(re.findall(r"^# TYPE (\S+)", self._scrape(), re.MULTILINE))

    def _scrape(self) -> str:
        with urllib.request.urlopen(
            self.wait_for("Metrics")["endpoint"], timeout=patience(5)
        ) as answer:
            return str(answer.read().decode())


def _status(endpoint: str) -> int:
    """The HTTP status at this address, 0 while nothing listens there."""
    try:
        with urllib.request.urlopen(endpoint, timeout=patience(5)) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refusal:
        return refusal.code
    except urllib.error.URLError:
        return 0
