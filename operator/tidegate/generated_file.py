"""A committed file that is made from the code: written anew, or checked to be what the code would write.

Used by the documentation generators, so that a page can never say something the program does not. It knows nothing of
what the pages hold, and it never touches a file that is right already.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path


def write_or_check(path: Path, content: str, *, command: str, arguments: Sequence[str] | None = None) -> int:
    """Write `content` to `path`, or with `--check` only compare; returns the exit code (1 = the file is out of date).

    `command` is how a person makes the file again; it is named in the message. A missing file counts as out of date.
    """
    parser = argparse.ArgumentParser(prog=command, description=f"Write {path}, which is generated from the code.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the file is out of date")
    check_only = parser.parse_args(arguments).check
    present = path.read_text(encoding="utf-8") if path.exists() else None
    if present == content:
        return 0
    if check_only:
        print(f"{path} is out of date with the code: run `{command}` and commit the result.", file=sys.stderr)
        return 1
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")
    print(f"wrote {path}")
    return 0
