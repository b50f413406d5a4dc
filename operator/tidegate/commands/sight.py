"""What `tidegate top` looks at: one policy's cluster and the load of its brokers, observed and judged as the operator does, read only.

Each look stands for itself but for what was said of each broker the last time, so that a load around its limit does not flicker. Contracts
and quotas are worked out without the load, so that nothing is shown as decided which only an operator with its memory could decide.
"""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from controller_logic.decide import decide
from controller_logic.decision import Decision, Memory
from controller_logic.model import Level, Observation, ReadingProblem, Readings
from controller_logic.throttle.input import Flows, flows_of
from controller_logic.throttle.pressure import Pressure, Watched, watch
from tidegate.commands.cluster_access import AccessOptions, opened_cluster
from tidegate.commands.context import Surroundings
from tidegate.commands.inputs import PolicySource
from tidegate.commands.secret_file import read_secret_file
from tidegate.control.connections import metrics_settings
from tidegate.control.metrics_watch import Reader
from tidegate.control.observe import KafkaCluster, Observer, QuotaPlugins
from tidegate.errors import TidegateError


@dataclass(frozen=True, slots=True)
class LevelWord:
    """What the operator said last of one level: its state, and since when (RFC 3339) and because of what."""

    state: str
    since: str = ""
    because: str = ""


@dataclass(frozen=True, slots=True)
class Sight:
    """One look. `is_measured` = the policy names metrics; readings are None where it does not, or where no broker is known to read of.

    `cluster_id` None = nobody answered. `watched` None = load or brokers are not known at all. `said` is what the operator's status says of
    levels.
    """

    observation: Observation
    decision: Decision
    cluster_id: str | None
    is_measured: bool
    watched: Watched | None = None
    said: Mapping[Level, LevelWord] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def readings(self) -> Readings | None:
        return self.observation.readings

    @property
    def flows(self) -> Flows:
        """What clients send, by usable readings only."""
        now_seconds, policy = self.observation.now_seconds, self.observation.policy
        readings = self.readings or Readings(now_seconds, 0.0)
        return flows_of(readings, now_seconds=now_seconds, stale_after_seconds=policy.stale_after_seconds)


class Lookout:
    """Looks at one policy's cluster again and again. It writes nothing."""

    def __init__(self, around: Surroundings, cluster: KafkaCluster, reader: Reader | None) -> None:
        self._around = around
        self._cluster = cluster
        self._reader = reader
        self._observer = Observer(QuotaPlugins(settle_seconds=0.0))
        self._pressures: Mapping[int, Pressure] = {}

    def look(self, source: PolicySource) -> Sight:
        """Raises nothing for a world that is away: what is missing is a hold, or a problem of the readings."""
        now_seconds = self._around.now_seconds()
        usage, unread = source.usage(now_seconds)
        seen = self._observer.observe(source.declared, self._cluster, now_seconds=now_seconds, usage=usage)
        decision, _ = decide(seen.observation, Memory())
        observation = replace(seen.observation, readings=self._read(seen.observation))
        watched = watch(observation, self._pressures)
        self._pressures = {one.broker: one.pressure for one in watched or ()}
        cluster_id = seen.facts.cluster_id if seen.facts is not None else None
        warnings = (*source.remarks(), *(warning.message for warning in (*seen.warnings, *unread)))
        return Sight(observation, decision, cluster_id, self._reader is not None, watched, _said(source.status), warnings)

    def _read(self, observation: Observation) -> Readings | None:
        if self._reader is None or observation.topology is None:
            return None
        try:
            return self._reader.read(observation.topology.brokers)
        except TidegateError as error:
            problem = ReadingProblem(error.reason, error.message)
            return Readings(observation.now_seconds, 0.0, problems=(problem,))


def _said(status: Mapping[str, Any]) -> Mapping[Level, LevelWord]:
    levels = {level.value: level for level in Level}
    tiers = [tier for tier in status.get("tiers") or () if tier.get("level") in levels]
    return {levels[tier["level"]]: LevelWord(str(tier.get("state")), tier.get("since") or "", tier.get("because") or "") for tier in tiers}


@contextmanager
def opened_lookout(around: Surroundings, source: PolicySource, access: AccessOptions, *, metrics_file: Path | None) -> Iterator[Lookout]:
    """The policy's cluster and its Prometheus. Credentials of the latter come from `metrics_file` where it is given."""
    with opened_cluster(around, source, access) as cluster, tempfile.TemporaryDirectory(prefix="tidegate-") as folder:
        reader = _reader(around, source, metrics_file, folder=Path(folder))
        if reader is None:
            yield Lookout(around, cluster, None)
            return
        with closing(reader):
            yield Lookout(around, cluster, reader)


def _reader(around: Surroundings, source: PolicySource, metrics_file: Path | None, *, folder: Path) -> Reader | None:
    spec = source.declared.spec.metrics
    if spec is None:
        return None
    secret = read_secret_file(metrics_file)
    login, authority = (secret, secret) if metrics_file is not None else source.metrics_secrets()
    return around.open_reader(metrics_settings(spec, login=login, authority=authority, folder=folder))
