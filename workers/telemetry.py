"""The Temporal runtime of a worker process: its metrics for Prometheus, and the SDK's log lines among ours."""

from __future__ import annotations

import logging

from temporalio.runtime import (
    LogForwardingConfig,
    LoggingConfig,
    PrometheusConfig,
    Runtime,
    TelemetryConfig,
    TelemetryFilter,
)

from domain import metrics
from domain.errors import Category, Refused, format_one_line
from workers.settings import WorkerSettings

# The SDK's core writes coloured text to stderr unless its lines are forwarded: an outage would fill a JSON log with it.
_FORWARDED = LoggingConfig(
    filter=TelemetryFilter(core_level="WARN", other_level="ERROR"),
    forwarding=LogForwardingConfig(logger=logging.getLogger("temporal.core"), append_target_to_name=False),
)


def worker_runtime(settings: WorkerSettings) -> Runtime:
    """Returns a Temporal runtime that logs like the worker, and serves /metrics if the settings name an address."""
    if not settings.metrics:
        return Runtime(telemetry=TelemetryConfig(logging=_FORWARDED))
    prometheus = PrometheusConfig(
        bind_address=settings.metrics,
        counters_total_suffix=True,
        unit_suffix=True,
        durations_as_seconds=True,
        histogram_bucket_overrides=dict.fromkeys(metrics.TIMER_HELP, metrics.LATENCY_BUCKETS),
    )
    try:
        return Runtime(telemetry=TelemetryConfig(logging=_FORWARDED, metrics=prometheus))
    except ValueError as error:
        raise Refused(
            Category.INVALID,
            f"metrics cannot be served at {settings.metrics[:80]!r}: {format_one_line(error, 200)}",
            "set RATCHET_METRICS to a free address of this machine, such as 127.0.0.1:9464",
        ) from error
