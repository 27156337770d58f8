"""The list of providers; everything that differs between them is in their descriptions."""

from __future__ import annotations

from typing import Any

from providers import aws, simulated
from providers.leases import ironic
from providers.machines import qemu
from providers.provider import Backend, Provider

PROVIDERS: tuple[Provider[Any], ...] = (
    simulated.PROVIDER,
    aws.PROVIDER,
)

BACKENDS: tuple[Backend[Any], ...] = (qemu.BACKEND, ironic.BACKEND)
