"""Write files that are made from the code, or say which of them are out of date."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


def write_or_check(
    files: Mapping[Path, str], *, command: str, arguments: Sequence[str] | None = None
) -> int:
    """Write each file's text, or with `--check` only compare; returns the exit code (1 = a file is
    out of date).

    `command` is how a person makes the files again; it is named in the message. A missing file
    counts as out of date.
    """
    parser = argparse.ArgumentParser(
        prog=command, description="Write what is generated from the code."
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 if a file is out of date"
    )
    check_only = parser.parse_args(arguments).check
    stale = [
        path
        for path, text in files.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    for path in stale:
        if check_only:
            print(
                f"{path} is out of date with the code: run `{command}` and commit the result.",
                file=sys.stderr,
            )
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[path], encoding="utf-8")
        print(f"wrote {path}")
    return 1 if stale and check_only else 0
