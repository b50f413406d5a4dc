"""Processes of the lab: each with its own log and process group, stopped by its own pid, and never outliving the lab.

Three nets, each for what the one before it cannot catch: `Process.stop` (a context manager ends), atexit (somebody forgot), and the
kernel's parent-death signal (this interpreter was killed). Ports and waiting live in `ports` and `waiting`; nothing here knows what
the processes do.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lab.errors import LabError

NICENESS = 5
_POLL_SECONDS = 0.02

# Set the death signal first, then look whether the parent is still there: without the look, a parent that died in between would leave
# an orphan. `$0` is the parent's pid.
_TETHER = ("setpriv", "--pdeathsig", "KILL", "sh", "-c", 'test "$PPID" = "$0" && exec "$@"')

# The kernel sends the death signal when the *thread* that started the child ends, so all children are started by one thread that
# lives as long as the interpreter.
_spawner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="lab-spawner")
_running: set[Process] = set()
_running_lock = threading.Lock()


class Process:
    """A process started by `start`. Its log holds stdout and stderr; a program's own log files are its own affair."""

    def __init__(self, name: str, popen: subprocess.Popen[bytes], *, log_path: Path) -> None:
        self.name = name
        self.log_path = log_path
        self._popen = popen

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The process id; also the id of its process group."""
        return self._popen.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative when a signal ended it."""
        if self._popen.returncode is not None:
            return self._popen.returncode
        # The ended leader is left unreaped until `kill`: as long as it is there, its pid cannot belong to anybody else's group.
        ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return self.exit_code is None

    def wait(self, timeout_seconds: float) -> int:
        """The exit code once it has ended; `LabError` with the log's tail when it has not within the time."""
        deadline = time.monotonic() + timeout_seconds
        while (code := self.exit_code) is None:
            if time.monotonic() >= deadline:
                raise LabError(f"{self.name} (pid {self.pid}) was still running after {timeout_seconds:g} s.\n{self.log_tail()}")
            time.sleep(_POLL_SECONDS)
        return code

    def expect_success(self, timeout_seconds: float) -> None:
        """Wait for it to end with code 0; `LabError` with the log's tail for any other end."""
        code = self.wait(timeout_seconds)
        if code != 0:
            raise LabError(f"{self.name} failed with code {code}.\n{self.log_tail()}")

    def kill(self) -> None:
        """End it and its group with SIGKILL, as a crash would; returns when it is gone. A second call does nothing."""
        if self._popen.returncode is None:
            os.killpg(self.pid, signal.SIGKILL)
            self._popen.wait()
        with _running_lock:
            _running.discard(self)

    def stop(self, grace_seconds: float = 10.0) -> None:
        """End it with SIGTERM, and with SIGKILL when it has not ended after `grace_seconds`. Nothing happens when it was ended before."""
        if self.is_running():
            os.killpg(self.pid, signal.SIGTERM)
            with contextlib.suppress(LabError):  # not ended in time: the kill below is the answer
                self.wait(grace_seconds)
        self.kill()

    def log_tail(self, lines: int = 20) -> str:
        """The last lines of its log with a heading, for error messages; says so when the log is empty."""
        return log_tail(self.log_path, lines)


def start(
    name: str,
    argv: Sequence[str],
    *,
    log_path: Path,
    namespace: str | None = None,
    environment: Mapping[str, str] | None = None,
    working_directory: Path | None = None,
    niceness: int = NICENESS,
) -> Process:
    """Start `argv` as the part `name` of the lab, in the network namespace `namespace` when one is given.

    stdout and stderr are appended to `log_path`, whose directory is made. `environment` is added to this process's own. The child
    leads its own process group, so Ctrl-C reaches the lab and not the child. Raises `LabError` when the program is not there.
    """
    if shutil.which(argv[0]) is None:
        raise LabError(f"{name} cannot start: {argv[0]} is not on this machine. `python -m lab doctor` says what to install.")
    log_path.parent.mkdir(parents=True, exist_ok=True)
    command = [*_inside(namespace), "nice", "-n", str(niceness), *_TETHER, str(os.getpid()), *argv]
    popen = _spawner.submit(_spawn, command, log_path, environment or {}, working_directory).result()
    process = Process(name, popen, log_path=log_path)
    with _running_lock:
        _running.add(process)
    return process


def log_tail(log_path: Path, lines: int = 20) -> str:
    """The last `lines` lines of a log file under a heading that names the file."""
    try:
        tail = log_path.read_text(errors="replace").splitlines()[-lines:]
    except FileNotFoundError:
        tail = []
    return "\n".join([f"Last lines of {log_path}:", *(f"  {line}" for line in tail or ["(empty)"])])


def _inside(namespace: str | None) -> list[str]:
    return ["ip", "netns", "exec", namespace] if namespace else []


def _spawn(command: list[str], log_path: Path, environment: Mapping[str, str], working_directory: Path | None) -> subprocess.Popen[bytes]:
    with log_path.open("ab") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **environment},
            cwd=working_directory,
        )


@atexit.register
def _stop_all() -> None:
    with _running_lock:
        left = list(_running)
    for process in left:
        process.stop()
