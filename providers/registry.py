"""The list of providers; everything that differs between them is in their descriptions."""

from __future__ import annotations

from typing import Any

from providers import aws, simulated
from providers.provider import Provider

PROVIDERS: tuple[Provider[Any], ...] = (
    simulated.PROVIDER,
    aws.PROVIDER,
)
