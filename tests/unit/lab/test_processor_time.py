"""Processor time of the machine during a phase, from the kernel's counters."""

from pathlib import Path

from lab.load import ProcessorShare, ProcessorTimes


def times(tmp_path: Path, counters: str) -> ProcessorTimes:
    source = tmp_path / "stat"
    source.write_text(f"cpu  {counters}\ncpu0 1 2 3 4 5 6 7 8 9 10\n")
    return ProcessorTimes.now(source)


def test_what_the_host_took_is_neither_busy_nor_idle(tmp_path: Path) -> None:
    before = times(tmp_path, "100 10 50 1000 40 0 5 20 7 7")
    after = times(tmp_path, "130 20 60 1030 50 0 5 30 7 7")
    assert ProcessorShare.between(before, after) == ProcessorShare(busy_percent=50.0, stolen_percent=10.0)


def test_no_time_is_no_share(tmp_path: Path) -> None:
    now = times(tmp_path, "100 10 50 1000 40 0 5 20 7 7")
    assert ProcessorShare.between(now, now) == ProcessorShare(0.0, 0.0)


def test_the_kernel_of_this_machine_is_understood() -> None:
    now = ProcessorTimes.now()
    assert now.total > now.idle > 0
