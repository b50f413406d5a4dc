"""The operator's part for replication as a process of its own, to be killed:

    python -m tests.integration.kafka.replication_keeper POLICY_FILE

It makes a pass every half second over the policy's cluster, on the real store and brokers, and
prints a line of JSON for each: moves, seconds left, changes made, whether nothing of ours is left.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

from tidegate.control.connections import open_cluster
from tidegate.control.declared import declare
from tidegate.control.replication import ReplicationControl, ReplicationResult
from tidegate.control.trust import Secrets
from tidegate.errors import TidegateError
from tidegate_logic.decision import Decision
from tidegate_logic.replication.moves import MoveKind


def main(policy_file: str) -> None:
    """Pass after pass, until it is killed."""
    declared = declare(json.loads(Path(policy_file).read_text()), ())
    control = ReplicationControl(time.time, lambda: True)
    with tempfile.TemporaryDirectory() as folder:
        cluster = open_cluster(declared.spec.kafka, secrets=Secrets(), folder=Path(folder))
        while True:
            try:
                facts = cluster.store.facts()
            except TidegateError as error:
                print(json.dumps({"error": error.message}), flush=True)
                time.sleep(0.5)
                continue
            result = control.run(
                declared,
                cluster.replication,
                cluster.store,
                facts=facts,
                decision=Decision(),
                owner=None,
            )
            print(json.dumps(_line(result)), flush=True)
            time.sleep(0.5)


def _line(result: ReplicationResult) -> dict[str, object]:
    decision = result.decision
    if decision is None:
        return {"error": None if result.error is None else result.error.message}
    return {
        "at": time.time(),
        "moves": len(decision.moves),
        "left": decision.bytes_left(MoveKind.REASSIGNMENT),
        "seconds": decision.estimates[MoveKind.REASSIGNMENT].seconds,
        "changes": [str(one) for one in result.applied],
        "failed": {str(one): why for one, why in result.failed.items()},
        "finished": result.is_finished,
        "error": None if result.error is None else result.error.message,
    }


if __name__ == "__main__":
    main(sys.argv[1])
