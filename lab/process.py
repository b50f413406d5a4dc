"""Processes of the lab: each with its own log and process group, never outliving the lab.

Three nets, each for what the one before it cannot catch: `Process.stop` (a context manager ends),
atexit (somebody forgot), and the kernel's parent-death signal (this interpreter was killed).
Nothing here knows what the processes do.
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
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Self, TypeVar

from lab.errors import LabError, say

T = TypeVar("T")

_SAID_LINES, _SHOWN_CHARACTERS = 20, 400


class CommandFailed(LabError):
    """A command ended with a code other than 0; `said` is what it wrote to stdout and stderr."""

    def __init__(self, shown: str, done: subprocess.CompletedProcess[str]) -> None:
        self.exit_code, self.stderr = done.returncode, done.stderr
        self.said = (done.stdout + done.stderr).strip()
        tail = "\n".join(self.said.splitlines()[-_SAID_LINES:])
        super().__init__(f"`{shown}` ended with code {self.exit_code}: {tail}")


def output_of(
    command: Sequence[str | Path],
    *,
    timeout_seconds: float,
    environment: Mapping[str, str] | None = None,
    working_directory: Path | None = None,
    input: str = "",
) -> str:
    """What a command that ends by itself writes to stdout; `input` goes to its stdin.

    Raises `CommandFailed` when it ends with another code than 0, `LabError` when it cannot be
    started or has not ended in time.

    `environment` is all that it gets, and where it is looked for; without one, it gets this
    process's own.
    """
    shown = shorten(" ".join(map(str, command)), _SHOWN_CHARACTERS, placeholder=" ...")
    try:
        done = subprocess.run(
            command,
            env=environment,
            cwd=working_directory,
            input=input,
            capture_output=True,
            text=True,
            timeout=patience(timeout_seconds),
        )
    except subprocess.TimeoutExpired:
        raise LabError(
            f"`{shown}` had not ended after {patience(timeout_seconds):.3g} s.{when_busy()}"
        ) from None
    except OSError as error:
        raise LabError(
            f"`{shown}` cannot be started: {error.strerror}. `make doctor` lists what this machine "
            f"lacks."
        ) from error
    if done.returncode != 0:
        raise CommandFailed(shown, done)
    return done.stdout


class Opened(ABC):
    """Something of the lab for as long as a `with` block lasts; of a start that fails, nothing
    stays.
    """

    _stack: ExitStack

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._open(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @abstractmethod
    def _open(self, stack: ExitStack) -> None:
        """Start all of it; what undoes that goes on the stack."""


@contextlib.contextmanager
def repeated(look: Callable[[], None], *, seconds: float = 1.0) -> Iterator[None]:
    """Call `look` every so many seconds in a thread, until the context is left."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(seconds):
            look()

    thread = threading.Thread(target=run, name="repeated", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@dataclass(frozen=True)
class ProcessIdentity:
    """A process for all time: its pid, its start (kernel ticks since boot) and its boot."""

    pid: int
    start_ticks: int
    boot_id: str

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity | None:
        """Who has that pid now; None when none has, or an ended process that waits to be reaped."""
        try:
            # The second field is the program's name in parentheses and may hold spaces: count from
            # after it.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            return None
        state, start_ticks = fields[0], int(fields[19])
        return None if state == "Z" else cls(pid, start_ticks, boot_id)

    @classmethod
    def own(cls) -> ProcessIdentity:
        """This process."""
        identity = cls.of(os.getpid())
        if identity is None:
            raise RuntimeError("/proc is not mounted; the lab needs Linux with /proc")
        return identity

    def is_alive(self) -> bool:
        """Whether exactly this process still runs."""
        return ProcessIdentity.of(self.pid) == self


NICENESS = 5
_POLL_SECONDS = 0.02

# Set the death signal first, then look whether the parent is still there: without the look, a
# parent that died in between would leave an orphan. `$0` is the parent's pid.
_TETHER = ("setpriv", "--pdeathsig", "KILL", "sh", "-c", 'test "$PPID" = "$0" && exec "$@"')

# The kernel sends the death signal when the *thread* that started the child ends, so all children
# are started by one thread that lives as long as the interpreter.
_spawner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="lab-spawner")
_running: set[Process] = set()
_running_lock = threading.Lock()


class Process:
    """A process started by `start`.

    Its log holds stdout and stderr; a program's own log files are its own affair.
    """

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
        # The ended leader is left unreaped until `kill`: as long as it is there, its pid cannot
        # belong to anybody else's group.
        ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return self.exit_code is None

    def wait(self, timeout_seconds: float) -> int:
        """The exit code once it has ended.

        Raises `LabError` with the log's tail when it has not within the time, or within the
        `patience` that a busy machine needs for it.
        """
        began = time.monotonic()
        while (code := self.exit_code) is None:
            if _is_over(began, timeout_seconds):
                raise LabError(
                    f"{self.name} (pid {self.pid}) was still running after "
                    f"{patience(timeout_seconds):.3g} s.{when_busy()}\n{self.log_tail()}"
                )
            time.sleep(_POLL_SECONDS)
        return code

    def expect_success(self, timeout_seconds: float) -> None:
        """Wait for it to end with code 0; `LabError` with the log's tail for any other end."""
        code = self.wait(timeout_seconds)
        if code != 0:
            raise LabError(f"{self.name} failed with code {code}.\n{self.log_tail()}")

    def kill(self) -> None:
        """End it and its group with SIGKILL, as a crash would; returns when it is gone.

        A second call does nothing.
        """
        if self._popen.returncode is None:
            os.killpg(self.pid, signal.SIGKILL)
            self._popen.wait()
        with _running_lock:
            _running.discard(self)

    def stop(self, grace_seconds: float = 10.0) -> None:
        """End it with SIGTERM, and with SIGKILL when it has not ended after `grace_seconds`.

        Nothing happens when it was ended before.
        """
        if self.is_running():
            os.killpg(self.pid, signal.SIGTERM)
            with contextlib.suppress(LabError):  # not ended in time: the kill below is the answer
                self.wait(grace_seconds)
        self.kill()

    def log_tail(self, lines: int = 20) -> str:
        """The last lines of its log with a heading, for error messages; it says if it is empty."""
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
    """Start `argv` as the part `name` of the lab, in the network namespace `namespace` if given.

    stdout and stderr are appended to `log_path`, whose directory is made. `environment` is added to
    this process's own. The child leads its own process group, so Ctrl-C reaches the lab and not the
    child. Raises `LabError` when the program is not there.
    """
    if shutil.which(argv[0]) is None:
        raise LabError(
            f"{name} cannot start: {argv[0]} is not on this machine. `python -m lab doctor` says "
            f"what to install."
        )
    log_path.parent.mkdir(parents=True, exist_ok=True)
    command = [*_inside(namespace), "nice", "-n", str(niceness), *_TETHER, str(os.getpid()), *argv]
    popen = _spawner.submit(
        _spawn, command, log_path, environment or {}, working_directory
    ).result()
    process = Process(name, popen, log_path=log_path)
    with _running_lock:
        _running.add(process)
    return process


@contextlib.contextmanager
def started(make: Callable[[], AbstractContextManager[T]]) -> Iterator[T]:
    """A part of the lab that is made and started once more where its first start fails: on a busy
    machine somebody may have taken one of its ports by then.
    """
    with ExitStack() as stack:
        try:
            part = stack.enter_context(make())
        except LabError as error:
            say("tests", f"a part is started once more; the first start failed: {error}")
            part = stack.enter_context(make())
        yield part


def log_tail(log_path: Path, lines: int = 20) -> str:
    """The last `lines` lines of a log file under a heading that names the file."""
    try:
        tail = log_path.read_text(errors="replace").splitlines()[-lines:]
    except FileNotFoundError:
        tail = []
    return "\n".join([f"Last lines of {log_path}:", *(f"  {line}" for line in tail or ["(empty)"])])


def _inside(namespace: str | None) -> list[str]:
    return ["ip", "netns", "exec", namespace] if namespace else []


def _spawn(
    command: list[str],
    log_path: Path,
    environment: Mapping[str, str],
    working_directory: Path | None,
) -> subprocess.Popen[bytes]:
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


LONGEST_PATIENCE_SECONDS = 600.0


def slowness() -> float:
    """How many times as long work takes now as on a quiet machine: the threads that want to run for
    each processor, on average of the last minute or now, whichever are more; 1 at least.

    The kernel gives nice processes a fifth less for each step where others want to run.
    """
    load, _, _, threads, _ = Path("/proc/loadavg").read_text().split()
    running = int(threads.partition("/")[0])
    each = max(float(load), running) / len(os.sched_getaffinity(0))
    return each * 1.25 ** max(0, os.nice(0)) if each > 1 else 1.0


def patience(seconds: float) -> float:
    """How long to wait for what comes within `seconds` on a quiet machine: as much longer as this
    one is slower now, up to 600 s. What needs more than 600 s by itself gets just that.
    """
    return max(seconds, min(seconds * slowness(), LONGEST_PATIENCE_SECONDS))


_BUSY = 5.0  # of `slowness`


def when_busy() -> str:
    """What an error adds when it is the machine that may be at fault; else nothing."""
    times = slowness()
    if times < _BUSY:
        return ""
    return (
        f" This machine is busy: work takes about {times:.0f} times as long as on a quiet one. Try "
        f"again when it has less to do."
    )


def _is_over(began: float, seconds: float) -> bool:
    passed = time.monotonic() - began
    return passed >= seconds and passed >= patience(seconds)


_LONG_SECONDS, _LONGEST_PAUSE_SECONDS = 0.1, 0.5


def freeze(pid: int) -> None:
    """Stop the process until SIGCONT; return once each of its threads stands still.

    The signal counts from when the thread that it went to runs again; until then others go on.
    """
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: _is_frozen(pid), "every thread to stop", timeout_seconds=10)


def _is_frozen(pid: int) -> bool:
    states = {
        task.joinpath("stat").read_text().rpartition(")")[2].split()[0]
        for task in Path(f"/proc/{pid}/task").iterdir()
    }
    return states == {"T"}


def wait_until(
    condition: Callable[[], T],
    what: str,
    *,
    timeout_seconds: float,
    processes: Sequence[Process] = (),
    poll_seconds: float = 0.05,
) -> T:
    """Poll `condition` until it is truthy and return what it gave.

    `what` completes the sentence "waited N s for ...". Raises `LabError` after `timeout_seconds`
    (on a busy machine after the `patience` that it needs for them), or at once when one of the
    `processes` it depends on has ended; both show the tails of their logs. A condition that raises
    is not caught. One that takes long, such as a command, is asked less often: it would take the
    processor from what it waits for.
    """
    began = time.monotonic()
    while True:
        asked_at = time.monotonic()
        answer = condition()
        if answer:
            return answer
        _fail_on_ended(processes, what)
        if _is_over(began, timeout_seconds):
            raise LabError(
                "\n".join(
                    [
                        f"Waited {patience(timeout_seconds):.3g} s for {what}; it did not come."
                        f"{when_busy()}",
                        *(process.log_tail() for process in processes),
                    ]
                )
            )
        took_seconds = time.monotonic() - asked_at
        if took_seconds > _LONG_SECONDS:
            pause_seconds = min(2 * took_seconds, _LONGEST_PAUSE_SECONDS)
        else:
            pause_seconds = 0.0
        time.sleep(max(poll_seconds, pause_seconds))


def _fail_on_ended(processes: Sequence[Process], what: str) -> None:
    for process in processes:
        if not process.is_running():
            raise LabError(
                f"{process.name} ended with code {process.exit_code} before "
                f"{what}.\n{process.log_tail()}"
            )
