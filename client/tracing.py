"""Traces for an OpenTelemetry collector, from clients and workers alike; none unless RATCHET_TRACES is set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

from temporalio.client import Plugin

from activities.measuring import Span, no_span
from client.settings import ClientSettings
from domain.errors import Category, Refused

FLUSH_MILLISECONDS = 2_000  # a collector that is away must not hold up a command for longer
EXPORT_SECONDS = 2


def plugins(settings: ClientSettings) -> list[Plugin]:
    """What traces a client and its workers; nothing if RATCHET_TRACES is not set."""
    if not settings.traces:
        return []
    _provider(settings.traces)
    from temporalio.contrib.opentelemetry import OpenTelemetryPlugin

    return [OpenTelemetryPlugin(add_temporal_spans=True)]


def span(settings: ClientSettings) -> Span:
    """How activities mark their calls in a trace."""
    if not settings.traces:
        return no_span
    tracer = _provider(settings.traces).get_tracer("ratchet")

    @contextmanager
    def marked(name: str, facts: Mapping[str, str]) -> Iterator[object]:
        with tracer.start_as_current_span(name, attributes=facts) as found:
            yield found

    return marked


@contextmanager
def traced(settings: ClientSettings, name: str) -> Iterator[None]:
    """A trace's beginning: what a person asked for. What is still to be sent is sent at the end of it."""
    try:
        with span(settings)(name, {}):
            yield
    finally:
        flush(settings)


def flush(settings: ClientSettings) -> None:
    """Send the spans that are still to be sent, if there are traces at all."""
    if settings.traces:
        _provider(settings.traces).force_flush(FLUSH_MILLISECONDS)


@cache
def _provider(address: str) -> Any:
    """One per process: OpenTelemetry takes no second one."""
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
