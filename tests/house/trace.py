"""Counts the product's files that a call enters: what somebody has to open who follows a value
through the code.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parents[2]
CORE = (ROOT / "controller_logic" / "tidegate_logic",)
PRODUCT = (ROOT / "operator" / "tidegate", *CORE)


@dataclass
class Trace:
    """The files below `folders` whose functions were called, how often, and how often one file
    called another.

    What runs while a module is imported does not count: it happens once in a process, whatever the
    process does.
    """

    folders: tuple[Path, ...]
    on_new_file: Callable[[str], None] = lambda _: None
    calls: dict[str, int] = field(default_factory=dict)
    changes: int = 0

    def __post_init__(self) -> None:
        self._prefixes = tuple(f"{folder}{os.sep}" for folder in self.folders)
        self._importing = threading.local()

    def hook(self, frame: FrameType, event: str, _: object) -> None:
        """For sys.setprofile."""
        depth = getattr(self._importing, "depth", 0)
        if (
            frame.f_code.co_name == "<module>"
            and event in ("call", "return")
            and frame.f_globals.get("__name__") != "__main__"
        ):
            self._importing.depth = max(0, depth + (1 if event == "call" else -1))
        elif event == "call" and not depth:
            self._called(frame)

    def _called(self, frame: FrameType) -> None:
        name = frame.f_code.co_filename
        if not name.startswith(self._prefixes):
            return
        if name not in self.calls:
            self.calls[name] = 0
            self.on_new_file(name)
        self.calls[name] += 1
        caller = frame.f_back.f_code.co_filename if frame.f_back else name
        if caller != name and caller.startswith(self._prefixes):
            self.changes += 1

    @property
    def files(self) -> list[str]:
        return relative(self.calls)


def relative(names: Iterable[str]) -> list[str]:
    """As the repository names them."""
    return sorted(Path(name).relative_to(ROOT).as_posix() for name in names)


def traced(call: Callable[[], object], folders: tuple[Path, ...] = PRODUCT) -> Trace:
    """Call it and watch this thread."""
    trace = Trace(folders)
    sys.setprofile(trace.hook)
    try:
        call()
    finally:
        sys.setprofile(None)
    return trace


def trace_into(folder: Path) -> None:
    """Watch this process, its later threads and its forks from now on; each file that is entered
    first is a line in `folder`.
    """

    def note(name: str) -> None:
        with (folder / f"{os.getpid()}.txt").open("a") as file:
            file.write(f"{name}\n")

    trace = Trace(PRODUCT, note)
    threading.setprofile(trace.hook)
    sys.setprofile(trace.hook)


def files_noted_in(folder: Path) -> list[str]:
    """What all processes together have noted."""
    return relative(
        {line for file in folder.glob("*.txt") for line in file.read_text().splitlines()}
    )
