"""A worker's metrics, for Prometheus."""

from __future__ import annotations

from temporalio.runtime import PrometheusConfig, Runtime, TelemetryConfig

from domain.errors import Category, Refused, one_line
from workers.settings import WorkerSettings


def metrics_runtime(settings: WorkerSettings) -> Runtime | None:
    """Returns a Temporal runtime that serves /metrics, or None for the SDK's default, which serves nothing."""
    if not settings.metrics:
        return None
    prometheus = PrometheusConfig(
        bind_address=settings.metrics, counters_total_suffix=True, unit_suffix=True, durations_as_seconds=True
    )
    try:
        return Runtime(telemetry=TelemetryConfig(metrics=prometheus))
    except ValueError as error:
        raise Refused(
            Category.INVALID,
            f"metrics cannot be served at {settings.metrics[:80]!r}: {one_line(error, 200)}",
            "set RATCHET_METRICS to a free address of this machine, such as 127.0.0.1:9464",
        ) from error
