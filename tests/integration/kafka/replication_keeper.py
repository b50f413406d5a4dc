"""The operator's part for replication as a process of its own, to be killed:

    python -m tests.integration.kafka.replication_keeper POLICY_FILE

There is no Prometheus: to mode Follow every NIC has less room than `rate.min`. It makes a pass every half second over the policy's cluster, on the real store and brokers, and
prints a line of JSON for each: moves, seconds left, what never ends, changes made, whether nothing
of ours is left.
"""

import json
import sys
import tempfile
import time
from collections.abc import Collection
from pathlib import Path

from tidegate.control import replication
from tidegate.control.replication import ReplicationControl, ReplicationResult
from tidegate.control.report.replication import stall_words
from tidegate.errors import TidegateError
from tidegate.observe.connections import open_cluster
from tidegate.observe.declared import declare
from tidegate.observe.secrets_and_hosts import Secrets
from tidegate_logic.decision import Decision
from tidegate_logic.model import Direction
from tidegate_logic.replication.moves import MoveKind, Side
from tidegate_logic.replication.rates import NicRoom


def _full_nics(throttle: object, limits: object, brokers: Collection[int]) -> dict[Side, NicRoom]:
    return {
        Side(broker, direction): NicRoom(1_000_000, 1_000_000.0, time.time(), 20.0)
        for broker in brokers
        for direction in Direction.COMBINED.parts
    }


def main(policy_file: str) -> None:
    """Pass after pass, until it is killed."""
    replication.nics_of = _full_nics
    declared = declare(json.loads(Path(policy_file).read_text()), ())
    control = ReplicationControl(time.monotonic, lambda: True)
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
        "kinds": sorted({one.kind.value for one in decision.moves}),
        "left": decision.bytes_left(MoveKind.REASSIGNMENT),
        "seconds": decision.estimates[MoveKind.REASSIGNMENT].seconds,
        "stalls": [stall_words(one) for one in decision.stalls],
        "changes": [str(one) for one in result.applied],
        "failed": {str(one): why for one, why in result.failed.items()},
        "finished": result.is_finished,
        "error": None if result.error is None else result.error.message,
    }


if __name__ == "__main__":
    main(sys.argv[1])
