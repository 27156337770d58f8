"""Sends traces of clients and workers to an OpenTelemetry collector, if RATCHET_TRACES is set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from temporalio.client import Plugin

from client.settings import ClientSettings
from domain.errors import Category, Refused

if TYPE_CHECKING:
    from activities.measuring import Span

FLUSH_MILLISECONDS = 2_000  # a command waits no longer for a collector that does not answer
EXPORT_SECONDS = 2


def tracing_plugins(settings: ClientSettings) -> list[Plugin]:
    """Returns the SDK's tracing plugin; none if RATCHET_TRACES is not set."""
    if not settings.traces:
        return []
    _tracer_provider(settings.traces)
    from temporalio.contrib.opentelemetry import OpenTelemetryPlugin

    return [OpenTelemetryPlugin(add_temporal_spans=True)]


def span_function(settings: ClientSettings) -> Span:
    """Returns a function by which activities open spans; without RATCHET_TRACES it does nothing."""
    from activities.measuring import no_span  # imported late: a command without tracing needs no measuring

    if not settings.traces:
        return no_span
    tracer = _tracer_provider(settings.traces).get_tracer("ratchet")

    @contextmanager
    def marked(name: str, facts: Mapping[str, str]) -> Iterator[object]:
        with tracer.start_as_current_span(name, attributes=facts) as opened:
            yield opened

    return marked


@contextmanager
def trace_command(settings: ClientSettings, name: str) -> Iterator[None]:
    """Opens the root span of a command. At its end, pending spans are sent."""
    if not settings.traces:
        yield
        return
    try:
        with span_function(settings)(name, {}):
            yield
    finally:
        flush_spans(settings)


def flush_spans(settings: ClientSettings) -> None:
    """Sends pending spans, if RATCHET_TRACES is set."""
    if settings.traces:
        _tracer_provider(settings.traces).force_flush(FLUSH_MILLISECONDS)


@cache
def _tracer_provider(address: str) -> Any:
    """Returns the process's one tracer provider: OpenTelemetry accepts no second one."""
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from temporalio.contrib.opentelemetry import create_tracer_provider
    except ModuleNotFoundError as error:
        raise Refused(
            Category.INVALID, "traces need OpenTelemetry, which is not installed", "install the extra `tracing`"
        ) from error
    provider = create_tracer_provider(resource=Resource.create({"service.name": "ratchet"}))
    exporter = OTLPSpanExporter(endpoint=f"{address.rstrip('/')}/v1/traces", timeout=EXPORT_SECONDS)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return provider
