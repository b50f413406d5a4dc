"""What is asked of the data source `tidegate.prometheus`: its options as text -> what to read, from where, when and in which pieces.

Names are Spark's way of writing options, whatever their case. One that nobody knows is refused, because a misspelt `token` would be none.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tidegate.commands.trail import moment
from tidegate.errors import InvalidResource
from tidegate.prometheus.settings import BasicLogin, BearerLogin, BrokerLabel, MetricsSettings, Preset, PrometheusServer
from tidegate.rollup.ingest.catalogue import DirectionSelections, catalogue
from tidegate.rollup.samples import Selection
from tidegate.rollup.schemas import DIRECTIONS
from tidegate.rollup.transport.selection_text import selection_of
from tidegate.rollup.transport.settings import ClientCertificate, HistorySettings

SERIES = ("cards", "client_bytes", "replication_bytes", "rates", "throttle_times")
OPTIONS = (
    *("url", "query", "preset", "series", "direction", "brokerLabel", "start", "end", "chunkSeconds", "labels"),
    *("token", "tokenFile", "username", "password", "caFile", "certificateFile", "keyFile"),
    *("replicaLabels", "externalLabels", "scrapeIntervalSeconds", "parallelRequests"),
)
HEADER = "header."
_CHUNK_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class SourceRequest:
    """`selection` in [start_ms, end_ms), read in pieces of `chunk_ms`."""

    selection: Selection
    history: HistorySettings = field(repr=False)
    start_ms: int
    end_ms: int
    chunk_ms: int

    def pieces_ms(self) -> Iterator[tuple[int, int]]:
        """Ranges that lie on whole chunks of the clock, so that the same times are read in the same pieces whatever was asked for."""
        at_ms = self.start_ms
        while at_ms < self.end_ms:
            upto_ms = min(self.end_ms, at_ms - at_ms % self.chunk_ms + self.chunk_ms)
            yield at_ms, upto_ms
            at_ms = upto_ms


def labels_of(options: Mapping[str, str]) -> tuple[str, ...]:
    """The labels that are columns of their own; none = all of them in one map."""
    return _names(_Options(options), "labels")


def request_of(options: Mapping[str, str]) -> SourceRequest:
    """Raises InvalidResource for whatever is missing, unknown or makes no sense."""
    given = _Options(options)
    server = PrometheusServer(given.required("url", "the server, such as http://prometheus:9090"), _login(given), given.get("caFile"))
    now_seconds = time.time()
    since = given.required("start", "the first moment: a time such as 2026-11-21T11:00:00Z, or how long ago, such as 2h")
    start_ms, end_ms = (int(moment(text, now_seconds=now_seconds) * 1000) for text in (since, given.get("end") or "0s"))
    if start_ms >= end_ms:
        raise InvalidResource(f"There is no time between start={since} and end={given.get('end') or 'now'}: nothing can be read.")
    return SourceRequest(
        _selection(given, server), _history(given, server), start_ms, end_ms, given.count("chunkSeconds", _CHUNK_SECONDS) * 1000
    )


class _Options:
    """Options by name, whatever their case."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in options.items()}
        known = {name.lower() for name in OPTIONS}
        if unknown := sorted(name for name in self._given if name not in known and not name.startswith(HEADER)):
            raise InvalidResource(f"There is no option {', '.join(unknown)}: take some of {', '.join(OPTIONS)}, {HEADER}NAME.")
        self.headers = {name.removeprefix(HEADER): value for name, value in self._given.items() if name.startswith(HEADER)}

    def get(self, name: str) -> str | None:
        return self._given.get(name.lower())

    def required(self, name: str, meaning: str) -> str:
        if not (value := self.get(name)):
            raise InvalidResource(f"Option {name} is missing: {meaning}.")
        return value

    def count(self, name: str, default: int) -> int:
        text = self.get(name) or str(default)
        if not text.isdecimal() or int(text) < 1:
            raise InvalidResource(f"Option {name}={text} is no whole number above 0.")
        return int(text)

    def one_of(self, name: str, choices: tuple[str, ...], default: str) -> str:
        value = self.get(name) or default
        if value not in choices:
            raise InvalidResource(f"Option {name}={value} is none of {', '.join(choices)}.")
        return value


def _names(given: _Options, name: str) -> tuple[str, ...]:
    return tuple(one.strip() for one in (given.get(name) or "").split(",") if one.strip())


def _login(given: _Options) -> BearerLogin | BasicLogin | None:
    token, username, password = given.get("token"), given.get("username"), given.get("password")
    if (username is None) != (password is None) or (token and username):
        raise InvalidResource("A login is either token (or tokenFile), or username together with password.")
    if username is not None and password is not None:
        return BasicLogin(username, password)
    return BearerLogin(token) if token else None


def _selection(given: _Options, server: PrometheusServer) -> Selection:
    query, series = given.get("query"), given.get("series")
    if (query is None) == (series is None):
        raise InvalidResource('What to read is told by either query (metric{label="value"}), or series (cards, rates, ...) of a preset.')
    if query is not None:
        return selection_of(query)
    preset = Preset(given.one_of("preset", tuple(Preset), Preset.NODE_EXPORTER))
    label = given.get("brokerLabel")
    settings = MetricsSettings(server, preset, brokers=None if label is None else BrokerLabel(label))
    of_direction: DirectionSelections = catalogue(settings)["produce" if _direction(given) == "produce" else "fetch"]
    found: Selection | None = getattr(of_direction, given.one_of("series", SERIES, ""))
    if found is None:
        raise InvalidResource(f"Preset {preset} has no {series}. Say with query which series they are.")
    return found


def _direction(given: _Options) -> str:
    return given.one_of("direction", DIRECTIONS, "fetch")


def _history(given: _Options, server: PrometheusServer) -> HistorySettings:
    certificate, key = given.get("certificateFile"), given.get("keyFile")
    if (certificate is None) != (key is None):
        raise InvalidResource("certificateFile and keyFile go together: one of them is missing.")
    return HistorySettings(
        server,
        token_file=given.get("tokenFile"),
        client_certificate=None if certificate is None or key is None else ClientCertificate(certificate, key),
        headers=given.headers,
        replica_labels=_names(given, "replicaLabels"),
        external_labels=_names(given, "externalLabels"),
        scrape_interval_ms=given.count("scrapeIntervalSeconds", 15) * 1000,
        parallel_requests=given.count("parallelRequests", 4),
    )
