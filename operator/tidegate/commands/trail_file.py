"""The audit trail as a file that a person names."""

from collections.abc import Sequence
from pathlib import Path

from controller_logic.reasons import Reason
from tidegate.commands.trail import AuditLine, Wanted, read_trail
from tidegate.errors import NotFound


def trail_in(file: Path) -> Sequence[AuditLine]:
    """All its lines. Raises NotFound where it cannot be read."""
    try:
        with file.open(encoding="utf-8", errors="replace") as stream:
            return read_trail(stream, Wanted()).lines
    except OSError as error:
        raise NotFound(Reason.INVALID_SPEC, f"File {file} cannot be read ({error.strerror}); nothing was written.") from error
