"""The process of one load client: `python -m lab.load_client <plan.json> <rows.jsonl>`.

See `lab.load`.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from lab.kafka_admin import login_settings
from lab.load import LoadPlan, Meter, Pacing, refuse_foreign_addresses

_CONNECT_TIMEOUT_SECONDS = 20
_LONGEST_NAP_SECONDS = 0.05  # rows are due every second, and a stop should not have to wait
_MESSAGES_PER_POLL = 200
# a producer's own buffer: about 4 MB, so that a mute is felt at once and not after a long drain
_QUEUED_MESSAGES = 400
_MESSAGE_BYTES = 10_000


class LoadRun:
    """The state of one run: its meter, its pace, and whether its time or its bytes are used up."""

    def __init__(self, plan: LoadPlan, meter: Meter) -> None:
        self.plan = plan
        self.meter = meter
        self.pacing = Pacing(plan.steps, catch_up_seconds=plan.catch_up_seconds)
        self.offered_bytes = 0
        self._started = time.monotonic()
        self._stopped = False
        signal.signal(signal.SIGTERM, self._stop)

    def goes_on(self) -> bool:
        """Write the rows that are due; return whether the client has time left and goes on."""
        self.meter.tick(time.time())
        return self._elapsed_seconds() < self.plan.duration_seconds and not self._stopped

    def has_bytes_left(self) -> bool:
        """Whether it may move more bytes."""
        return self.offered_bytes < self.plan.max_bytes

    def nap_seconds(self) -> float:
        """How long to do nothing for the sake of the pace; 0 when bytes may move now."""
        return min(self.pacing.wait_seconds(self._elapsed_seconds()), _LONGEST_NAP_SECONDS)

    def offered(self, offered_bytes: int) -> None:
        """Note bytes given to, or got from, the client library."""
        self.offered_bytes += offered_bytes
        self.pacing.moved(offered_bytes)

    def _elapsed_seconds(self) -> float:
        return time.monotonic() - self._started

    def _stop(self, *_: object) -> None:
        self._stopped = True


def main(plan_path: str, rows_path: str) -> None:
    """Run the plan to its end, or to SIGTERM, and leave its rows."""
    plan = LoadPlan.from_json(Path(plan_path).read_text())
    with Path(rows_path).open("w") as out:
        meter = Meter(plan.name, out, unix_seconds=time.time())
        run = produce if plan.mode == "produce" else consume
        run(plan, meter)
        meter.close(time.time())


def produce(plan: LoadPlan, meter: Meter) -> None:
    """Offer messages at the plan's pace, over its partitions in turn."""
    defaults = {
        "queue.buffering.max.messages": _QUEUED_MESSAGES,
        "linger.ms": 20,
        "batch.size": 131072,
        "acks": "1",
    }
    producer = Producer({**_client_settings(plan, meter), **defaults, **dict(plan.settings)})
    _refuse_foreign_brokers(producer)
    payload, turn, run = os.urandom(_MESSAGE_BYTES), 0, LoadRun(plan, meter)
    delivered = _delivery_report(meter)
    while run.goes_on() and (run.has_bytes_left() or len(producer)):
        nap_seconds = run.nap_seconds() if run.has_bytes_left() else _LONGEST_NAP_SECONDS
        if nap_seconds:
            producer.poll(nap_seconds)
            continue
        try:
            producer.produce(
                plan.topic,
                payload,
                partition=plan.partitions[turn % len(plan.partitions)],
                callback=delivered,
            )
        except BufferError:
            producer.poll(_LONGEST_NAP_SECONDS)
            continue
        turn += 1
        run.offered(_MESSAGE_BYTES)
        producer.poll(0)
    # Where time ended the run, what is still queued was never acknowledged: it is dropped, not
    # counted.
    producer.purge()


def consume(plan: LoadPlan, meter: Meter) -> None:
    """Fetch at the plan's pace, from the beginning, and from there again at the end."""
    defaults = {
        "group.id": f"load-{plan.name}",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "queued.max.messages.kbytes": 16384,
        "fetch.message.max.bytes": 1048576,
    }
    consumer = Consumer({**_client_settings(plan, meter), **defaults, **dict(plan.settings)})
    _refuse_foreign_brokers(consumer)
    consumer.assign([TopicPartition(plan.topic, partition, 0) for partition in plan.partitions])
    run = LoadRun(plan, meter)
    while run.goes_on() and run.has_bytes_left():
        nap_seconds = run.nap_seconds()
        if nap_seconds:
            time.sleep(nap_seconds)
            continue
        for message in consumer.consume(_MESSAGES_PER_POLL, _LONGEST_NAP_SECONDS):
            _take(message, consumer, run=run)
    consumer.close()


def _take(message: Any, consumer: Any, *, run: LoadRun) -> None:
    error = message.error()
    if error is None:
        run.meter.moved(message.partition(), len(message.value()))
        run.offered(len(message.value()))
    elif error.code() != KafkaError._PARTITION_EOF:
        run.meter.error()
    elif message.offset() > 0:  # at the end of an empty partition there is nothing to go back to
        consumer.seek(TopicPartition(message.topic(), message.partition(), 0))


def _client_settings(plan: LoadPlan, meter: Meter) -> dict[str, Any]:
    settings: dict[str, Any] = {"bootstrap.servers": plan.bootstrap_servers}
    if plan.user is not None:
        settings = login_settings(
            plan.bootstrap_servers, plan.user, password=plan.password or "", mechanism="PLAIN"
        )
    return settings | {
        "client.id": plan.client_id,
        "log_level": 4,
        "throttle_cb": lambda event: meter.throttled(round(event.throttle_time * 1000)),
        "error_cb": lambda _error: meter.error(),
    }


def _delivery_report(meter: Meter) -> Callable[[Any, Any], None]:
    def report(error: Any, message: Any) -> None:
        if error is None:
            meter.moved(message.partition(), _MESSAGE_BYTES)
        else:
            meter.failed()

    return report


def _refuse_foreign_brokers(client: Any) -> None:
    """Refuse addresses that the brokers advertise by the rule for bootstrap servers."""
    for broker in client.list_topics(timeout=_CONNECT_TIMEOUT_SECONDS).brokers.values():
        refuse_foreign_addresses(f"{broker.host}:{broker.port}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
