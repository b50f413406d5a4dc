"""`python -m bench.share_throttle`: what a fetch quota does to a share group of Kafka 4.3.1.

Plays `ShareThrottle.java` twice under the quota, each on a new broker, and once without a quota.
What it found is in docs/share-groups-under-a-quota.md.
"""

import argparse
from pathlib import Path

from lab.java import class_path
from lab.kraft import KraftLab
from lab.packages import KAFKA_4, kafka_jars
from lab.process import start

_PROGRAM = Path(__file__).with_name("ShareThrottle.java")
_ONE_REPLICA = {
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
_LONGEST_SECONDS = 1200


def main() -> None:
    """Play every run, one after the other; each prints its rounds and a summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quota", type=int, default=1_000_000, help="bytes/s; default 1000000")
    parser.add_argument("--rounds", type=int, default=10, help="of the record lock; default 10")
    parser.add_argument("--consumers", type=int, default=6)
    parser.add_argument("--records", type=int, default=20_000, help="of 10 kB; default 20000")
    parser.add_argument("--out", type=Path, default=Path("out/share-throttle"))
    given = parser.parse_args()
    for name, quota in (("quota-1", given.quota), ("quota-2", given.quota), ("no-quota", 0)):
        rounds = given.rounds if quota else 2
        play(given.out / f"{name}.log", quota, rounds, given.consumers, given.records)


def play(log: Path, quota: int, rounds: int, consumers: int, records: int) -> None:
    """One run on a broker of its own; the program's lines go to `log` and are printed."""
    log.parent.mkdir(parents=True, exist_ok=True)
    jars = class_path(kafka_jars(KAFKA_4))
    with KraftLab(server_properties=_ONE_REPLICA) as kafka:
        arguments = [kafka.bootstrap_servers, *map(str, (quota, rounds, consumers, records))]
        command = ["java", "-Xmx512m", "-cp", jars, str(_PROGRAM), *arguments]
        with start("share-throttle", command, log_path=log, niceness=0) as process:
            process.expect_success(_LONGEST_SECONDS)
    print(log.stem, log.read_text(), sep="\n", flush=True)


if __name__ == "__main__":
    main()
