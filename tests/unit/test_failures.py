"""What a test that fails does to those after it."""

import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
TWO = """
import gc
import socket


class Holder:
    def __init__(self):
        self.socket, self.itself = socket.socket(), self


def test_fails_and_leaves_a_socket_open():
    holder = Holder()
    assert holder is None


def test_after_it():
    gc.collect()
"""


def test_a_test_is_not_blamed_for_what_a_failed_one_left_open(tmp_path: Path) -> None:
    (tmp_path / "test_two.py").write_text(TWO)
    run = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "tests.conftest", "-c", "/dev/null"),
            *("-W", "error", "-p", "no:cacheprovider", str(tmp_path / "test_two.py")),
        ],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
    )
    assert "1 failed, 1 passed" in run.stdout, run.stdout + run.stderr
