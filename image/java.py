"""The Java that Spark runs on: Debian's OpenJDK, less what Spark never asks for, put together by its own `jlink`.

Debian's package for servers takes twice the room on a node, and needs libraries for fonts, sound and smart cards. What is here has the same
bytes each time, and goes by the same security updates.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from image import packages
from image.build_tools import run
from image.cuts import Cut, Saving, apply
from image.spark_start import JAVA_HOME
from lab import packages as debian_packages
from lab.errors import LabError

LIBRARIES = ("libstdc++6",)
TOOLS = ("openjdk-17-jdk-headless", "openjdk-17-jre-headless")
MODULES = (
    "java.base",
    "java.desktop",  # beans: how Spark reads a class; nothing is drawn
    "java.instrument",
    "java.logging",
    "java.management",
    "java.naming",
    "java.net.http",
    "java.security.jgss",
    "java.security.sasl",
    "java.sql",
    "java.xml",
    "jdk.crypto.ec",
    "jdk.jfr",
    "jdk.management",
    "jdk.naming.dns",
    "jdk.net",
    "jdk.security.auth",  # who the user is
    "jdk.security.jgss",
    "jdk.unsupported",
    "jdk.zipfs",
)
_DRAWING = ("awt*", "fontmanager", "freetype", "javajpeg", "jsound", "lcms", "mlib_image", "splashscreen")
_CUTS = (
    Cut("Java's libraries for drawing and sound", (*(f"{JAVA_HOME}/lib/lib{name}.so" for name in _DRAWING), f"{JAVA_HOME}/lib/psfont*")),
    Cut("Java's commands but `java`", (f"{JAVA_HOME}/bin/*", f"{JAVA_HOME}/lib/jrt-fs.jar"), but=(f"{JAVA_HOME}/bin/java",)),
    Cut("the C++ library's helpers for debuggers", ("usr/share/gcc", "usr/share/gdb")),
    Cut("manuals and change logs", ("usr/share/doc/*/*",), but=("usr/share/doc/*/copyright",)),
)
_TIMEOUT_SECONDS = 900.0


def make_java(tree: Path, *, work: Path) -> list[Saving]:
    """Java and the C++ library in the empty directory `tree`; returns what was left out. Raises `LabError`."""
    libraries = debian_packages.download(LIBRARIES, work / "libraries")
    tools = debian_packages.download(TOOLS, work / "tools")
    for archives, target in ((libraries, tree), (tools, work / "unpacked")):
        for archive in archives:
            run(["dpkg", "-x", archive, target], timeout_seconds=_TIMEOUT_SECONDS)
    packages.tell_scanners(tree, [*libraries, *(archive for archive in tools if "-jre-" in archive.name)])
    home = _home(work / "unpacked")
    (tree / JAVA_HOME).parent.mkdir(parents=True)
    options = ["--no-header-files", "--no-man-pages", "--add-modules", ",".join(MODULES), "--output", str(tree / JAVA_HOME)]
    run([home / "bin/jlink", "--module-path", home / "jmods", *options], timeout_seconds=_TIMEOUT_SECONDS)
    _keep_licence(work / "unpacked", tree)
    return apply(_CUTS, tree)


def _home(unpacked: Path) -> Path:
    """Where the unpacked Java lies, made to read the settings that lie beside it and not this machine's."""
    homes: Sequence[Path] = sorted(
        path for path in (unpacked / "usr/lib/jvm").glob("*") if not path.is_symlink() and (path / "jmods").is_dir()
    )
    if not homes:
        raise LabError(
            f"There is no Java with `jmods` in {unpacked}/usr/lib/jvm, where Debian's used to be. image/java_runtime.py looks there."
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
