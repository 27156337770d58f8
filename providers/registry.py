"""The providers there are. Everything that differs between them comes from their descriptions."""

from __future__ import annotations

from typing import Any

from providers import aws, simulated
from providers.provider import Provider

PROVIDERS: tuple[Provider[Any], ...] = (
    simulated.PROVIDER,
    aws.PROVIDER,
)
