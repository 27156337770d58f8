"""Services on this machine: what a process of ours allows them, and a supervisor that goes on after its own errors."""

from __future__ import annotations

import asyncio
import os
import time

import structlog

from domain.errors import StoreUnavailable
from providers.services.confinement import ProcessRules
from providers.services.container import ContainerRules
from providers.services.supervisor import ReportFacts, Supervisor
from workers.settings import WorkerSettings

FIRST_RESTART_PAUSE, LONGEST_RESTART_PAUSE = 1.0, 30.0  # seconds before a failed supervisor is started again

_log = structlog.get_logger("keeper")


def process_rules(settings: WorkerSettings) -> ProcessRules:
    """Returns what this process allows services that are processes."""
    own_users = settings.service_users == "own" and os.geteuid() == 0
    return ProcessRules(settings.programs, own_users, settings.secrets_folder().absolute())


def container_rules(settings: WorkerSettings) -> ContainerRules:
    """Returns what this process allows services in containers."""
    return ContainerRules(settings.images, settings.container_network != "own", settings.max_containers, settings.runc)


async def supervise_forever(supervisor: Supervisor, report: ReportFacts) -> None:
    """Runs the supervisor, and restarts it after an error."""
    pause = FIRST_RESTART_PAUSE
    while True:
        began = time.monotonic()
        try:
            await supervisor.run(report)
        except StoreUnavailable as error:  # an outage: one line for each try
            _log.warning("the supervisor waits for the store", backend=supervisor.name, error=str(error))
        except Exception:
            _log.exception("the supervisor failed; it is restarted", backend=supervisor.name)
        pause = FIRST_RESTART_PAUSE if time.monotonic() - began > LONGEST_RESTART_PAUSE else pause
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_RESTART_PAUSE)
