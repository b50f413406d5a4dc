"""docs/kind.md, pasted as it is printed, by somebody with an empty home directory (`make walk`).

One shell runs every line of the page's shell blocks in their order, and stops at the first that
fails. What is built once (Kubernetes, the image's layers) comes from the cache. Needs root.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from lab import standing

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "kind.md"
_SHELL_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_MARK = re.compile(r"^@ (\w+) ([\d.]+)$", re.MULTILINE)
_CACHE = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
_TIMEOUT_SECONDS = 1500
# From a cluster without Tidegate, with its image at hand, to what Kafka says of the quota.
_QUOTA_SECONDS = 180
_FIRST, _LAST = "kind load image-archive", "kafka-configs.sh --bootstrap-server"


@pytest.mark.timeout(_TIMEOUT_SECONDS + 120)
def test_from_an_empty_kind_to_an_enforced_quota(tmp_path: Path) -> None:
    assert standing.everything() == [], "the page's last line would end this lab, too"
    page = PAGE.read_text(encoding="utf-8")
    script = "\n".join(_SHELL_BLOCK.findall(page)).splitlines()
    lines = ["set -e -o pipefail"]
    for line in script:
        lines += ['echo "@ begun $(date +%s.%N)"'] * line.startswith(_FIRST)
        lines.append(line)
        lines += ['echo "@ ended $(date +%s.%N)"'] * line.startswith(_LAST)
    environment = {
        **os.environ,  # how packages are reached from here, for `make image`
        "HOME": str(tmp_path),
        "XDG_CACHE_HOME": _CACHE,
        "LANG": "C.UTF-8",
    }
    environment.pop("KUBECONFIG", None)
    try:
        done = subprocess.run(
            ["bash", "-c", "\n".join(lines)],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_TIMEOUT_SECONDS,
        )
    finally:
        for lab in standing.everything():
            standing.take_down(lab)
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-3000:]
    marks = {name: float(at) for name, at in _MARK.findall(done.stdout)}
    took_seconds = marks["ended"] - marks["begun"]
    print(f"From an empty kind to the quota: {took_seconds:.0f} s.")
    assert took_seconds <= _QUOTA_SECONDS
    # promised 10 MB/s for each partition, and a broker leads one
    described = re.search(
        r"^Quota configs for user-principal 'checkout' are (.*)$", done.stdout, re.M
    )
    assert described is not None
    rates = dict(pair.split("=") for pair in described[1].split(", "))
    assert rates == {"consumer_byte_rate": "1.0E7", "producer_byte_rate": "1.0E7"}
    assert re.search(r"^brokerbandwidthpolicy\S+ .* True ", done.stdout, re.M)
