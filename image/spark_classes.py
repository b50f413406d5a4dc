"""What starts Java in the rollup image, and the classes that Java has loaded by then, laid out as it wants them in memory.

Without the archive each small job reads, checks and links ten thousand classes, which is half of its processor time. A sample job tells
which they are. The archive serves one Java and one class path, so it is made where both are.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from image import spark_start, wheels
from image.build_tools import run
from image.cuts import Saving

_COMMAND = "usr/bin/tidegate-rollup"
_SAMPLE = Path(__file__).with_name("spark_sample.py")
_TIMEOUT_SECONDS = 1200.0
# What PySpark starts while classes are recorded: as in the image, but for the place and the record.
_RECORDER = """\
#!{python}
import os, sys

sys.path.insert(0, {sources!r})
from image.spark_classes import recording_command

os.chdir({root!r})
os.execv({java!r}, recording_command(sys.argv[1:], {root!r}, record={record!r}))
"""


def make_classes(tree: Path, *, work: Path, packages: Path, java: Path, spark: Path) -> list[Saving]:
    """The starter and the archive in the empty directory `tree`; the others are trees of the layers below. Raises `LabError`."""
    _install_starter(tree)
    root = _joined(work / "root", java, spark)
    record = work / "classes"
    _record(root, record, work=work, python_path=[packages / wheels.SITE, spark / wheels.SITE])
    record.write_text(in_order(record.read_text()))
    archive = tree / spark_start.ARCHIVE
    archive.parent.mkdir(parents=True)
    run(_dump_command(root, record, archive), timeout_seconds=_TIMEOUT_SECONDS, directory=root)
    archive.chmod(0o644)
    return []


def recording_command(arguments: Sequence[str], root: str, *, record: str) -> list[str]:
    """The driver's Java machine, told to write the names of the classes that it loads to `record`."""
    java, *options = [word for word in spark_start.driver_command(arguments, root) if word not in spark_start.ARCHIVE_OPTIONS]
    return [java, f"-XX:DumpLoadedClassList={record}", *options]


def in_order(record: str) -> str:
    """Names of classes, then of what was made of them at run time, each once and sorted: threads load them in no order that stays."""
    lines = {line for line in record.splitlines() if line and not line.startswith("#") and " source: " not in line}
    return "".join(f"{line}\n" for line in sorted(lines, key=lambda line: (line.startswith("@"), line)))


def _dump_command(root: Path, record: Path, archive: Path) -> list[str]:
    files = [f"-XX:SharedClassListFile={record}", f"-XX:SharedArchiveFile={archive}"]
    return [f"{root}/{spark_start.JAVA_HOME}/bin/java", "-Xshare:dump", "-XX:+UseG1GC", *files, "-cp", spark_start.class_path(str(root))]


def _install_starter(tree: Path) -> None:
    starter, submit = tree / _COMMAND, tree / spark_start.SPARK_HOME / "bin/spark-submit"
    for place in (starter, submit):
        place.parent.mkdir(parents=True)
    shutil.copyfile(spark_start.__file__, starter)
    starter.chmod(0o755)
    submit.symlink_to(f"/{_COMMAND}")
    starter.with_name("rm").symlink_to(starter.name)


def _joined(root: Path, java: Path, spark: Path) -> Path:
    """A directory in which Java and Spark lie as they will under `/`."""
    for part, name in ((java, spark_start.JAVA_HOME), (spark, spark_start.SPARK_HOME)):
        (root / name).parent.mkdir(parents=True)
        (root / name).symlink_to(part / name)
    return root


def _record(root: Path, record: Path, *, work: Path, python_path: Sequence[Path]) -> None:
    home, scratch = work / "spark", work / "scratch"
    submit = home / "bin/spark-submit"
    for place in (submit.parent, scratch):
        place.mkdir(parents=True)
    java = f"{root}/{spark_start.JAVA_HOME}/bin/java"
    submit.write_text(_RECORDER.format(python=sys.executable, sources=str(wheels.ROOT), root=str(root), java=java, record=str(record)))
    submit.chmod(0o755)
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(map(str, python_path)),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TMPDIR": str(scratch),
    }
    argv: list[str | Path] = [sys.executable, "-s", _SAMPLE, "local[2]", scratch]
    run(argv, timeout_seconds=_TIMEOUT_SECONDS, environment=environment)
