"""The Python packages that only rollups need, PySpark with its jars above all, and what of them is left out.

A jar stays whole or goes whole: scanners know jars by their hashes. What goes are families that no rollup comes near; `python -m
image --rollup --smoke` runs a job on what is left, and so do the rollup scenarios of `e2e/`.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path

from image import bytecode, cuts, package_record, wheels
from image.cuts import Cut, Saving
from image.spark_start import SPARK_HOME

_SITE = wheels.SITE
_JARS = f"{SPARK_HOME}/jars"


def _jars(*globs: str) -> tuple[str, ...]:
    return tuple(f"{_JARS}/{glob}.jar" for glob in globs)


JARS = (
    Cut("Spark's state of streams, and the databases it lies in", _jars("rocksdbjni-*", "leveldbjni-*")),
    Cut(
        "Hive, its metastore and its server",
        (
            *_jars("hive-[!s]*", "hive-serde-*", "hive-service-*", "hive-shims*", "spark-hive*", "derby*", "datanucleus-*", "javax.jdo-*"),
            *_jars(
                "jdo-api-*", "HikariCP-*", "libfb303-*", "libthrift-*", "jta-*", "transaction-api-*", "commons-dbcp-*", "commons-pool-*"
            ),
            *_jars("javolution-*", "jpam-*", "opencsv-*", "super-csv-*", "stax-api-*", "json-1*", "antlr-runtime-*", "ST4-*"),
        ),
    ),
    Cut(
        "machine learning and graphs",
        (
            *_jars("spark-mllib*", "spark-graphx*", "breeze*", "spire*", "cats-kernel*", "algebra_*", "arpack*", "lapack-*", "blas-*"),
            *_jars("JTransforms*", "JLargeArrays*"),
        ),
    ),
    Cut("Spark Connect's server and pipelines", (*_jars("spark-connect*", "spark-pipelines*"), f"{_JARS}/connect-repl")),
    Cut("the Scala shell and compiler", _jars("spark-repl*", "scala-compiler*", "jline-*")),
    Cut("other schedulers: YARN, Volcano, ZooKeeper", _jars("spark-yarn*", "volcano-*", "curator-*", "zookeeper-*")),
    Cut("the server of Spark's web pages", _jars("jersey-*", "hk2-*", "jaxb-*")),
)
PACKAGES = (
    Cut("tests of packages", tuple(f"{_SITE}/{name}/tests" for name in ("pandas", "pyarrow", "numpy", "numpy/**"))),
    Cut(
        "Arrow's servers of data",
        tuple(f"{_SITE}/pyarrow/{name}" for name in ("libarrow_flight.*", "libarrow_python_flight.*", "_flight.*")),
    ),
    Cut("copies of Arrow's library for compilers to link", (f"{_SITE}/pyarrow/libarrow_python*.so", f"{_SITE}/pyarrow/*.so.*.*.*")),
    Cut(
        "Spark's examples, scripts, and packed copies of its Python",
        tuple(f"{SPARK_HOME}/{name}" for name in ("bin", "data", "examples", "python", "sbin")),
    ),
    Cut(
        "sources and headers of compiled modules",
        (
            *(f"{_SITE}/{name}" for name in ("pyarrow/include", "pyarrow/src", "numpy/_core/include", "numpy/f2py")),
            *(f"{_SITE}/**/*.{kind}" for kind in ("c", "h", "pyx", "pxd", "pxi", "a", "cc")),
        ),
    ),
    Cut("hints for type checkers", (f"{_SITE}/**/*.pyi",)),
    Cut("a second copy of a jar", (f"{_SITE}/share",)),
    *cuts.OWN,
)


def make_spark(tree: Path, *, work: Path, base: Path) -> list[Saving]:
    """What rollups need above the operator's packages, in the empty directory `tree`; returns what was left out. Raises `LabError`."""
    wheels.install_locked(tree, wheels.rollup_requirements(), work=work)
    savings = cuts.apply((*JARS, _other_platforms(), *PACKAGES), tree)
    package_record.correct(tree / _SITE)
    bytecode.compile_modules(tree, _SITE, base=base)
    _date_jars(tree)
    return savings


def _other_platforms() -> Cut:
    """Compiled parts of jars for processors and systems that the image is not for."""
    here = "linux-aarch_64" if platform.machine() == "aarch64" else f"linux-{platform.machine()}"
    return Cut("jars for other systems", _jars("netty-*-osx-*", "netty-*-windows-*", "netty-*-linux-*"), but=_jars(f"netty-*-{here}"))


def _date_jars(tree: Path) -> None:
    """As they will be in the layer: the archive of classes remembers each jar's date, and 1970 as none."""
    for jar in (tree / _JARS).glob("*.jar"):
        os.utime(jar, (0, 0))
