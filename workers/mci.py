"""What a worker needs for MCIs: the workflows, and the activities that call clouds, on a queue for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from activities.books import CloudBooks
from activities.mci import Patience, VmActivities
from activities.simulation import Simulation
from activities.verifying import Audit
from domain.limits import CLOUDS
from domain.wire import ACTIONS_QUEUE, cloud_queue
from workers.parts import Parts
from workflows.mci import ControlVms, CreateMci, RemoveVms

WORKFLOWS: list[type] = [CreateMci, ControlVms, RemoveVms]


def activities(parts: Parts) -> dict[str, list[Callable[..., Any]]]:
    """Queue by queue."""
    patience = Patience(call=parts.settings.call_timeout, total=parts.settings.patience)
    vms = VmActivities(parts.inventory, parts.clouds, parts.permits, patience)
    simulation = Simulation(next(iter(parts.simulated.values())))
    on_clouds = {cloud_queue(csp): [vms.operate_vms, vms.settle_vms, vms.forget_vms] for csp in CLOUDS}
    return {ACTIONS_QUEUE: [simulation.faults], **on_clouds}


def audits(parts: Parts) -> list[Audit]:
    """VMs against the clouds' books."""
    return [CloudBooks(parts.inventory, parts.clouds).audit]
