"""Settings and fixtures of all tests: how hypothesis searches, SIGINT as on a terminal, the
temporary folder, and the goldens.
"""

import gc
import os
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.goldens.golden import GoldenFile

# On a developer's machine every run searches elsewhere. CI repeats one search, so that it fails for
# the change that it was given and not for luck. Deadlines would only measure how busy a shared
# machine is. `make test-long` searches four times as much: a large test takes a part of
# `max_examples`, which is Hypothesis' own here.
settings.register_profile("developer", deadline=None, max_examples=100)
settings.register_profile("ci", deadline=None, max_examples=100, derandomize=True)
settings.register_profile("thorough", deadline=None, max_examples=400)
settings.load_profile("ci" if os.environ.get("CI") else "developer")

_FAILED = pytest.StashKey[bool]()

# A shell lets its background jobs ignore SIGINT, and every process below inherits that. Some tests
# send one.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Put temporary files of the code under test into a folder that pytest clears away."""
    before, tempfile.tempdir = tempfile.tempdir, str(tmp_path_factory.mktemp("temporary"))
    yield
    tempfile.tempdir = before


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[..., None]:
    """`golden(text)` compares a message with its golden, `golden(text, "name")` where a test has
    several; see `tests/goldens/golden.py`.
    """
    folder = Path(str(request.node.path)).relative_to(Path(__file__).parent / "unit").parent
    file = GoldenFile(folder.as_posix().replace("/", "-") if folder.parts else "tidegate")
    test = request.node.name.removeprefix("test_").replace("_", " ")

    def check(text: str, name: str = "") -> None:
        file.check(f"{test}: {name}" if name else test, text)

    return check


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        item.stash[_FAILED] = True
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """What a test that failed has left open is closed before the next one, which would be blamed
    for it: the frames of a failure are kept until then.
    """
    done = yield
    if item.stash.get(_FAILED, False):
        for name in ("last_type", "last_value", "last_traceback", "last_exc"):
            vars(sys).pop(name, None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
    return done


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "golden" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.golden)
