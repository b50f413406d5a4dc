"""The machine that figures were measured on, without host name, path or user."""

import os
import platform
import shutil
import subprocess
from pathlib import Path

import psutil

_JAVA_TIMEOUT_SECONDS = 10


def describe_machine() -> dict[str, str]:
    """Label and text, in the order in which they are shown; `unknown` = could not be found out."""
    return {
        "Processor": f"{os.cpu_count() or 1} cores, {_processor()}",
        "Memory": f"{psutil.virtual_memory().total / 1e9:.0f} GB",
        "System": f"{_distribution()}, Linux {platform.release().split('-')[0]}",
        "Python": platform.python_version(),
        "Java": _java(),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        label, _, text = line.partition(":")
        if label.strip() == "model name":
            return text.strip()
    return platform.machine()


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "unknown")
    except OSError:
        return "unknown"


def _java() -> str:
    if shutil.which("java") is None:
        return "unknown"
    answer = subprocess.run(
        ["java", "-version"],
        capture_output=True,
        text=True,
        timeout=_JAVA_TIMEOUT_SECONDS,
        check=False,
    )
    return answer.stderr.splitlines()[0] if answer.stderr else "unknown"
