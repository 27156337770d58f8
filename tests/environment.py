"""Activities that a test runs by itself."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from temporalio.testing import ActivityEnvironment


def activity_environment(seconds: float = 3_600) -> ActivityEnvironment:
    """An environment whose activity is given this long; the SDK gives a second, after which the fence is closed."""
    environment = ActivityEnvironment()
    given = timedelta(seconds=seconds)
    environment.info = replace(
        environment.info,
        start_to_close_timeout=given,
        schedule_to_close_timeout=given,
        heartbeat_timeout=given,
    )
    return environment
