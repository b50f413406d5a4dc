"""Debian's Chromium for tests of pages: the machine's own, or one unpacked into the cache.

Nothing is installed and no root is needed: its packages and all that they depend on are unpacked,
and a launcher makes the program find them. Only the C library is the machine's own.
"""

import platform
import shutil
import textwrap
from pathlib import Path

from lab import cache, packages, process
from lab.errors import say

_PACKAGES = ("chromium", "fonts-dejavu-core")
_NAMES = ("chromium", "chromium-browser", "google-chrome")
_LAUNCHER, _FONTS, _ROOT = "chromium", "fonts.conf", "root"
# a C library is bound to the machine's own loader
_OF_THE_MACHINE = ("libc6_", "libc-bin_")
_UNPACK_TIMEOUT_SECONDS = 300.0
_VERSION = "2"  # of what is done below with the packages


def chromium() -> Path:
    """The program; some 230 MB are downloaded where neither machine nor cache has one.

    Raises `LabError` when its packages are not to be had.
    """
    own = next((found for name in _NAMES if (found := shutil.which(name))), None)
    if own is not None:
        return Path(own)
    key = [*_PACKAGES, _VERSION, platform.machine()]
    return cache.entry(_LAUNCHER, key, build=_unpack) / _LAUNCHER


def _unpack(content: Path) -> None:
    say(_LAUNCHER, "downloading Debian's Chromium and what it needs, about 230 MB")
    work, root = content.parent, content / _ROOT
    root.mkdir()
    for archive in packages.download_with_dependencies(_PACKAGES, work / "download"):
        if archive.name.startswith(_OF_THE_MACHINE):
            continue
        argv = ["dpkg", "-x", str(archive), str(root)]
        with process.start("dpkg", argv, log_path=work / "dpkg.log") as dpkg:
            dpkg.expect_success(_UNPACK_TIMEOUT_SECONDS)
    for unused in ("usr/share/doc", "usr/share/locale", "usr/share/icons", "usr/share/man"):
        shutil.rmtree(root / unused, ignore_errors=True)
    (content / _FONTS).write_text(
        '<?xml version="1.0"?><fontconfig><dir prefix="relative">root/usr/share/fonts</dir>'
        '<cachedir prefix="xdg">fontconfig</cachedir></fontconfig>\n'
    )
    launcher = content / _LAUNCHER
    # the cache entry is moved to its place when it is whole, so the launcher asks where it is
    launcher.write_text(
        textwrap.dedent(f"""\
        #!/bin/sh
        here=$(dirname "$(readlink -f "$0")")
        machine={platform.machine()}-linux-gnu
        libraries="$here/{_ROOT}/usr/lib/$machine:$here/{_ROOT}/lib/$machine"
        libraries="$libraries:$here/{_ROOT}/usr/lib/$machine/pulseaudio"
        export LD_LIBRARY_PATH="$libraries${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
        export FONTCONFIG_FILE="$here/{_FONTS}"
        exec "$here/{_ROOT}/usr/lib/chromium/chromium" "$@"
        """)
    )
    launcher.chmod(0o755)
