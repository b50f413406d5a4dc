"""Gives each control pass an id, and spans where traces are wanted.

The id is in every log line, audit line and Event of the pass. It goes with the context of the
thread, as the current span does, so code that continues a pass in another thread takes a copy of
that context along. Without a collector's address there are no spans, and OpenTelemetry, which is an
extra (`tidegate[tracing]`), is not even imported.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol
from zlib import crc32

from tidegate import __version__
from tidegate.errors import UserActionRequired
from tidegate_logic.reasons import Reason

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor

PASS_FIELD: Final = "pass"  # noqa: S105  # of log lines and audit lines
_EXPORT_SECONDS: Final = 5.0
_Attribute = str | int | float | bool


def current_pass() -> str:
    """The id of the pass that this thread works for; "" = for none."""
    from structlog.contextvars import get_contextvars  # a command waits for it and logs nothing

    return str(get_contextvars().get(PASS_FIELD, ""))


def new_pass_id(identity: str, policy_key: str, now_seconds: float) -> str:
    """Unlike that of any other pass, and in the order of time: milliseconds and whose it is."""
    return f"{round(now_seconds * 1000):011x}-{crc32(f'{identity} {policy_key}'.encode()):08x}"


class Span(Protocol):
    """What happens now."""

    def note(self, **attributes: _Attribute) -> None:
        """Add what is known of it only now."""
        ...


class _NoSpan(AbstractContextManager["_NoSpan"]):
    """Notes nothing; one for all."""

    def note(self, **attributes: _Attribute) -> None:
        """Forgotten."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """It ends with nothing."""


_NO_SPAN: Final = _NoSpan()


class Tracing:
    """Makes ids and no spans."""

    def span(self, name: str, **attributes: _Attribute) -> AbstractContextManager[Span]:  # noqa: ARG002
        """Around a part of a pass."""
        return _NO_SPAN

    @contextmanager
    def of_pass(self, policy_key: str, pass_id: str) -> Iterator[Span]:
        """Around a whole pass: all that is logged, audited, posted and traced in it has its id."""
        from structlog.contextvars import bound_contextvars

        with bound_contextvars(**{PASS_FIELD: pass_id}):
            namespace, _, name = policy_key.partition("/")
            with self.span(
                "pass",
                **{
                    "tidegate.pass": pass_id,
                    "tidegate.policy.namespace": namespace,
                    "tidegate.policy.name": name,
                },
            ) as span:
                yield span

    def close(self) -> None:
        """Nothing waits to be sent."""


OFF: Final = Tracing()


class OpenTelemetryTracing(Tracing):
    """Spans for an exporter. Names of attributes have dots where keywords have underscores."""

    def __init__(self, processor: "SpanProcessor", identity: str) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider

        resource = Resource.create(
            {
                "service.name": "tidegate",
                "service.version": __version__,
                "service.instance.id": identity,
            }
        )
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("tidegate", __version__)

    @contextmanager
    def span(self, name: str, **attributes: _Attribute) -> Iterator[Span]:
        with self._tracer.start_as_current_span(name, attributes=attributes) as span:
            yield _Noting(span.set_attribute)

    def close(self) -> None:
        """Send what waits, for a few seconds at most."""
        self._provider.shutdown()


class _Noting:
    def __init__(self, set_attribute: Callable[[str, Any], None]) -> None:
        self._set = set_attribute

    def note(self, **attributes: _Attribute) -> None:
        for name, value in attributes.items():
            self._set(f"tidegate.{name}", value)


def open_tracing(endpoint: str, identity: str) -> Tracing:
    """Traces for the OTLP collector at this address (HTTP); "" = none.

    Raises UserActionRequired without the extra's libraries. An unreachable collector costs traces
    and a warning in the log, and no pass anything: spans are sent by a separate thread.
    """
    if not endpoint:
        return OFF
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise UserActionRequired(
            Reason.INVALID_SPEC,
            f"Traces are to be sent to {endpoint}, but OpenTelemetry is not installed "
            f"({error.name}). Install the extra tidegate[tracing], or leave "
            "--otlp-endpoint out. Nothing was started.",
        ) from error
    address = f"{endpoint.rstrip('/')}/v1/traces"
    exporter = OTLPSpanExporter(endpoint=address, timeout=_EXPORT_SECONDS)
    return OpenTelemetryTracing(BatchSpanProcessor(exporter), identity)
