"""`docs/reasons.md`: the table of every reason, generated from the one enum, so that the two cannot drift apart.

It formats only; what a reason means is said in `controller_logic/reasons.py`.
"""

import sys
from pathlib import Path

from controller_logic.reasons import Reason
from tools.generate import write_or_check

PAGE = Path("docs/reasons.md")
HEAD = """\
# Reasons

<!-- Generated from controller_logic/reasons.py by `make generate`; do not edit by hand. -->

The same words stand in conditions (`kubectl describe`), events, ledger records, `tidegate plan` and `explain`, and as labels of metrics.
A reason never changes its spelling; the message beside it carries the numbers.

| Reason | What it means |
|---|---|
"""


def reasons_page() -> str:
    """The whole page: one row a reason, in the order of the enum. A `|` in a meaning is escaped, so that no row breaks."""
    rows = (f"| `{reason.value}` | {reason.meaning.replace('|', chr(92) + '|')} |\n" for reason in Reason)
    return HEAD + "".join(rows)


if __name__ == "__main__":
    sys.exit(write_or_check({PAGE: reasons_page()}, command="python -m tidegate.reasons_table"))
