"""What only rollups need: Java by its own `jlink`, PySpark with its jars, Spark's classes.

The classes are an archive. Debian's OpenJDK for servers takes twice the room on a node and needs
libraries for fonts and sound. What is here has the same bytes each time, but for the archive, and
gets the same security updates.
"""

import os
import platform
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from image import build_tools, cuts, packages, spark_start
from image.cuts import Cut, Saving, apply
from image.spark_start import JAVA_HOME, SPARK_HOME
from lab import packages as debian_packages
from lab.errors import LabError
from lab.process import output_of

# The Python packages that only rollups need, PySpark with its jars above all, and what of them is
# left out.
#
# A jar stays whole or goes whole: scanners know jars by their hashes. What goes are families that
# no rollup comes near; `python -m image --rollup --smoke` runs a job on what is left, and so do the
# rollup scenarios of `e2e/`.


_SITE = packages.SITE
_JARS = f"{SPARK_HOME}/jars"


_TABLE = cuts.table("java")
JARS = cuts.named(_TABLE["jars"])
PACKAGES = (*cuts.named(_TABLE["packages"]), *cuts.OWN)


def make_spark(tree: Path, *, work: Path, base: Path) -> list[Saving]:
    """Put what rollups need above the operator's packages into the empty directory `tree`.

    Returns what was left out. Raises `LabError`.
    """
    packages.install_locked(tree, packages.extra_requirements("rollup"), work=work)
    savings = cuts.apply((*JARS, _other_platforms(), *PACKAGES), tree)
    build_tools.correct(tree / _SITE)
    build_tools.compile_modules(tree, _SITE, base=base)
    _date_jars(tree)
    return savings


def _other_platforms() -> Cut:
    """Compiled parts of jars for processors and systems that the image is not for."""
    here = "linux-aarch_64" if platform.machine() == "aarch64" else f"linux-{platform.machine()}"
    others = (f"{_JARS}/netty-*-{system}-*.jar" for system in ("osx", "windows", "linux"))
    return Cut("jars for other systems", tuple(others), but=(f"{_JARS}/netty-*-{here}.jar",))


def _date_jars(tree: Path) -> None:
    """Date jars as they will be in the layer: the archive of classes remembers each jar's date.

    It takes 1970 as none.
    """
    for jar in (tree / _JARS).glob("*.jar"):
        os.utime(jar, (0, 0))


# What starts Java in the rollup image, and the classes that Java has loaded by then, laid out as it
# wants them in memory.
#
# Without the archive each small job reads, checks and links ten thousand classes, which is half of
# its processor time. A sample job shows which they are. The archive serves one Java and one class
# path, so it is made where both are.


_COMMAND = "usr/bin/tidegate-rollup"
_SAMPLE = Path(__file__).with_name("spark_sample.py")
_START_TIMEOUT_SECONDS = 1200.0
# What PySpark starts while classes are recorded: as in the image, but for the place and the record.
_RECORDER = """\
#!{python}
import os, sys

sys.path.insert(0, {sources!r})
from image.java import recording_command

os.chdir({root!r})
os.execv({java!r}, recording_command(sys.argv[1:], {root!r}, record={record!r}))
"""


def make_classes(
    tree: Path, *, work: Path, packages: Path, java: Path, spark: Path
) -> list[Saving]:
    """Put the starter and the archive into the empty directory `tree`.

    The others are trees of the layers below. Raises `LabError`.
    """
    _install_starter(tree)
    root = _joined(work / "root", java, spark)
    record = work / "classes"
    _record(root, record, work=work, python_path=[packages / _SITE, spark / _SITE])
    record.write_text(in_order(record.read_text()))
    archive = tree / spark_start.ARCHIVE
    archive.parent.mkdir(parents=True)
    output_of(
        _dump_command(root, record, archive),
        timeout_seconds=_START_TIMEOUT_SECONDS,
        working_directory=root,
    )
    archive.chmod(0o644)
    return []


def recording_command(arguments: Sequence[str], root: str, *, record: str) -> list[str]:
    """The driver's Java machine, which writes the names of the classes it loads to `record`."""
    java, *options = [
        word
        for word in spark_start.driver_command(arguments, root)
        if word not in spark_start.ARCHIVE_OPTIONS
    ]
    return [java, f"-XX:DumpLoadedClassList={record}", *options]


def in_order(record: str) -> str:
    """Names of classes, then of what was made of them at run time, each once and sorted.

    Threads load them in no order that stays.
    """
    lines = {
        line
        for line in record.splitlines()
        if line and not line.startswith("#") and " source: " not in line
    }
    return "".join(
        f"{line}\n" for line in sorted(lines, key=lambda line: (line.startswith("@"), line))
    )


def _dump_command(root: Path, record: Path, archive: Path) -> list[str]:
    files = [f"-XX:SharedClassListFile={record}", f"-XX:SharedArchiveFile={archive}"]
    return [
        f"{root}/{spark_start.JAVA_HOME}/bin/java",
        "-Xshare:dump",
        "-XX:+UseG1GC",
        *files,
        "-cp",
        spark_start.class_path(str(root)),
    ]


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
    submit.write_text(
        _RECORDER.format(
            python=sys.executable,
            sources=str(packages.ROOT),
            root=str(root),
            java=java,
            record=str(record),
        )
    )
    submit.chmod(0o755)
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(map(str, python_path)),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TMPDIR": str(scratch),
    }
    argv: list[str | Path] = [sys.executable, "-s", _SAMPLE, "local[2]", scratch]
    output_of(argv, timeout_seconds=_START_TIMEOUT_SECONDS, environment=environment)


LIBRARIES = ("libstdc++6", "libnss-wrapper")  # the latter gives a name to any user id
TOOLS = ("openjdk-17-jdk-headless", "openjdk-17-jre-headless")
MODULES = _TABLE["modules"]
_CUTS = cuts.named(_TABLE["java"])
_TIMEOUT_SECONDS = 900.0


def make_java(tree: Path, *, work: Path) -> list[Saving]:
    """Put Java and the C++ library into the empty directory `tree`; return what was left out.

    Raises `LabError`.
    """
    libraries = debian_packages.download(LIBRARIES, work / "libraries")
    tools = debian_packages.download(TOOLS, work / "tools")
    for archives, target in ((libraries, tree), (tools, work / "unpacked")):
        for archive in archives:
            output_of(["dpkg", "-x", archive, target], timeout_seconds=_TIMEOUT_SECONDS)
    packages.tell_scanners(
        tree, [*libraries, *(archive for archive in tools if "-jre-" in archive.name)]
    )
    home = _home(work / "unpacked")
    (tree / JAVA_HOME).parent.mkdir(parents=True)
    options = [
        "--no-header-files",
        "--no-man-pages",
        "--add-modules",
        ",".join(MODULES),
        "--output",
        str(tree / JAVA_HOME),
    ]
    output_of(
        [home / "bin/jlink", "--module-path", home / "jmods", *options],
        timeout_seconds=_TIMEOUT_SECONDS,
    )
    _keep_licence(work / "unpacked", tree)
    return apply(_CUTS, tree)


def _home(unpacked: Path) -> Path:
    """Where the unpacked Java lies; it is made to read its own settings, not this machine's."""
    homes: Sequence[Path] = sorted(
        path
        for path in (unpacked / "usr/lib/jvm").glob("*")
        if not path.is_symlink() and (path / "jmods").is_dir()
    )
    if not homes:
        raise LabError(
            f"There is no Java with `jmods` in {unpacked}/usr/lib/jvm, where Debian's used to "
            f"be. image/java.py looks there."
        )
    for link in homes[0].rglob("*"):
        if link.is_symlink() and (target := link.readlink()).is_absolute():
            link.unlink()
            link.symlink_to(unpacked / target.relative_to("/"))
    return homes[0]


def _keep_licence(unpacked: Path, tree: Path) -> None:
    name = "usr/share/doc/openjdk-17-jre-headless/copyright"
    (tree / name).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(unpacked / name, tree / name)
