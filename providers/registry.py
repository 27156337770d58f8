"""The list of providers; everything that differs between them is in their descriptions."""

from __future__ import annotations

from typing import Any

from providers import aws, openstack, simulated
from providers.description import CloudProvider, FamilyBackend
from providers.leases import ironic
from providers.machines import qemu

PROVIDERS: tuple[CloudProvider[Any], ...] = (
    simulated.PROVIDER,
    aws.PROVIDER,
    openstack.PROVIDER,
)

BACKENDS: tuple[FamilyBackend[Any], ...] = (qemu.BACKEND, ironic.BACKEND)
