"""Where an episode is played: fresh consumers, the witnesses that record what happens to them, and waiting. It writes no quota."""

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Self

from demo.episode import Episode, TierStep
from demo.estate import Estate
from demo.tide.board import TideBoard
from demo.tide.card import recent_card_rate, sent_by_card
from demo.tide.figures import FULL_SHARE
from demo.tide.load import Consumers, consumers
from demo.tide.quota_witness import QuotaWitness
from demo.tide.script import business_of
from demo.words import MarkKind
from lab.errors import LabError
from lab.load import ProcessorShare, ProcessorTimes
from lab.rates import SAWTOOTH_SECONDS, ByteSeries

_FREE = "all read what they want, the limit is far away"
_LONGEST_START_SECONDS = 60.0
_HISTORY_SECONDS = 48
# The consumers write a second's row when it is over, and Prometheus' newest scrape is a second old.
_ROWS_LAG_SECONDS = 2


@dataclass(slots=True)
class Times:
    """When what happened in one episode; seconds since the epoch."""

    began: float
    limited: float = 0.0
    measured_from: float = 0.0
    measured_seconds: int = 0
    raised: float = 0.0


class Stage:
    """One episode's surroundings; a context manager, because its consumers and witnesses must end with it."""

    def __init__(self, parts: Estate, board: TideBoard, *, title: str, run: str) -> None:
        self.parts = parts
        self.board = board
        self.prometheus = parts.prometheus.ready()
        self._title = title
        self._run = run
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.witness = stack.enter_context(QuotaWitness(self.parts.kafka.zookeeper_connect, self.board))
            self._consumers = stack.enter_context(consumers(self.parts.kafka, self._run))
            ended = threading.Event()
            reader = threading.Thread(target=self._show_rates, args=(self._consumers, ended), name="rates", daemon=True)
            reader.start()
            stack.callback(reader.join)
            stack.callback(ended.set)
            self._ticks = ProcessorTimes.now()
            self.times = Times(began=time.time())
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def command(self, text: str) -> None:
        """Show what a person does now."""
        self.board.note(time.time(), MarkKind.COMMAND, text)

    def wait_for_full_load(self, seconds: int) -> None:
        """Let that much time pass, and more until everybody gets what they want; a busy machine gets up to a minute for it."""
        self.wait(_FREE, seconds)
        self.wait_until(lambda: self.all_full(SAWTOOTH_SECONDS), _FREE, longest_seconds=_LONGEST_START_SECONDS)

    def wait(self, activity: str, seconds: float) -> None:
        """Let that much time pass."""
        self.wait_until(lambda: False, activity, longest_seconds=seconds)

    def wait_until(self, holds: Callable[[], bool], activity: str, *, longest_seconds: float) -> bool:
        """Look once a second; True as soon as it holds, False when the time is over. `LabError` when the operator ended."""
        ends = time.time() + longest_seconds
        self.board.show_activity(self._title, activity, ends_at_seconds=ends)
        while (left := ends - time.time()) > 0:
            if holds():
                return True
            self._refuse_dead_operator()
            time.sleep(min(1.0, left))
        return holds()

    def card_rate(self, seconds: int) -> float | None:
        """What the broker's card sent in the last seconds, in bytes per second; None before it is known."""
        return recent_card_rate(self.parts.kafka, self.prometheus, seconds=seconds)

    def all_full(self, seconds: int) -> bool:
        """Whether everybody has got what they want, as the mean of the last whole seconds."""
        means = {level: sum(rates) / seconds for level, rates in self._consumers.history(seconds).items()}
        return all(rate >= FULL_SHARE * business_of(level).wanted for level, rate in means.items())

    def episode(self, tiers: tuple[TierStep, ...]) -> Episode:
        """Everything recorded until now."""
        ended = time.time()
        time.sleep(_ROWS_LAG_SECONDS)
        return Episode(
            began_seconds=self.times.began,
            limited_at_seconds=self.times.limited,
            measured_from_seconds=self.times.measured_from,
            measured_seconds=self.times.measured_seconds,
            raised_at_seconds=self.times.raised,
            ended_seconds=ended,
            arrived=self._consumers.series(),
            card=self._sent(ended),
            quotas=self.witness.steps(),
            tiers=tiers,
            processor=ProcessorShare.between(self._ticks, ProcessorTimes.now()),
        )

    def _sent(self, ended_seconds: float) -> ByteSeries:
        if self.parts.kafka.network is None:
            return self._consumers.together()
        return sent_by_card(self.prometheus, start_seconds=self.times.began, end_seconds=ended_seconds)

    def _show_rates(self, running: Consumers, ended: threading.Event) -> None:
        while not ended.wait(1.0):
            self.board.show_rates(running.history(_HISTORY_SECONDS), self.card_rate(SAWTOOTH_SECONDS))

    def _refuse_dead_operator(self) -> None:
        if not self.parts.operator.is_running():
            code = self.parts.operator.exit_code
            raise LabError(f"The operator ended with code {code} during the experiment.\n{self.parts.operator.log_tail()}")
