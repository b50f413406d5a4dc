"""The name of one run: one process that publishes. It is part of file names, so that no two runs ever write the same file."""

import re
import secrets
from datetime import UTC, datetime

from tidegate.errors import InvalidResource

_FORM = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")


def new_run_id(now_ms: int) -> str:
    """`20261122T071500Z-9f86d081`: unique, also among attempts of the same Job; never derive it from the window instead."""
    return f"{datetime.fromtimestamp(now_ms / 1000, tz=UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"


def require_run_id(run_id: str) -> str:
    """Raises InvalidResource for what cannot be part of a file's name everywhere."""
    if not _FORM.fullmatch(run_id):
        raise InvalidResource(f"{run_id!r} cannot name a run: up to 63 letters, digits and dashes, neither end a dash.")
    return run_id
