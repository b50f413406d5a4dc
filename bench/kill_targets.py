"""Where the processes of a run are, and what it means to strike one of them."""

import os
import signal
import threading
import time
from contextlib import suppress

import psutil

from bench.kill_plan import Blow, Kind
from bench.rollup_prometheus import HistoryPrometheus
from bench.small_disk import SmallDisk
from lab.process import Process
from tidegate.rollup.spark.session import WORKER_DAEMON

_LOOK_SECONDS = 0.02


class Targets:
    """What can be struck while this run is under way."""

    def __init__(self, run: Process, prometheus: HistoryPrometheus, disk: SmallDisk | None) -> None:
        self._run = run
        self._prometheus = prometheus
        self._disk = disk
        self._recovery: threading.Thread | None = None

    def strike(self, blow: Blow) -> bool:
        """False when the run ended before there was anything to strike."""
        match blow.kind:
            case Kind.DRIVER:
                return _killed(self._run.pid)
            case Kind.ENGINE | Kind.WORKER:
                return self._strike_process(blow)
            case Kind.STORAGE | Kind.PROMETHEUS:
                self._break(blow.kind)
                self._recovery = threading.Thread(target=self._mend, args=(blow,))
                self._recovery.start()
                return True

    def recover(self) -> None:
        """Return when what was away is back."""
        if self._recovery is not None:
            self._recovery.join()

    def _strike_process(self, blow: Blow) -> bool:
        while self._run.is_running():
            found = self._processes(blow.kind)
            if found:
                return _killed(found[int(blow.pick * len(found))])
            time.sleep(_LOOK_SECONDS)
        return False

    def _processes(self, kind: Kind) -> list[int]:
        found = []
        with suppress(psutil.NoSuchProcess):
            for one in psutil.Process(self._run.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    words = one.cmdline()
                    is_wanted = WORKER_DAEMON in words if kind is Kind.WORKER else words[:1] == ["java"] or "/java" in "".join(words[:1])
                    found += [one.pid] if is_wanted else []
        return sorted(found)

    def _break(self, kind: Kind) -> None:
        if kind is Kind.PROMETHEUS:
            self._prometheus.kill()
        elif self._disk is not None:
            self._disk.fill()

    def _mend(self, blow: Blow) -> None:
        time.sleep(blow.lasts_seconds)
        if blow.kind is Kind.PROMETHEUS:
            self._prometheus.start()
        elif self._disk is not None:
            self._disk.free()


def _killed(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False
