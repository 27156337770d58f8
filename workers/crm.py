"""The reference CRM as a process: `starter crm run`, or `python -m workers.crm`, which starts faster."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import structlog

from client.connection import connect_temporal
from domain.edge.faults import CrmFault, CrmFaultKind
from domain.errors import Refused
from domain.paths import check_path, name_of, parent_of
from providers.edge.agent import Agent, GatheringFailed
from providers.edge.handover import Handover, end, is_crm
from providers.edge.platform import Platform
from providers.edge.token import Token
from workers import logs
from workers.plugin import plugin
from workers.settings import Settings


@dataclass(frozen=True)
class CrmOptions:
    """The command-line options of a CRM process."""

    cloudlet: str
    version: str = "v1"
    latency: float = 0.3
    takeover: str = ""  # the version to end once this CRM can serve
    faults: tuple[CrmFault, ...] | None = None


def platform_file(home: Path, cloudlet: str) -> Path:
    """Returns the file of a cloudlet's simulated platform."""
    return home / "crm" / f"{name_of(str(parent_of(cloudlet)))}-{name_of(cloudlet)}.db"


def token_file_of(settings: Settings, cloudlet: str) -> Token:
    """Returns the token of a cloudlet's CRM: from the settings, or beside its platform file."""
    if settings.crm_token_file:
        return Token(settings.crm_token_file, required=True)
    return Token(platform_file(settings.home, cloudlet).with_suffix(".token"))


async def serve(settings: Settings, orders: CrmOptions) -> int:
    """Runs a CRM until it is told to stop. Returns the exit code: 0, or 1 if the cloudlet cannot be served."""
    logs.configure(settings.log_level, settings.log_format)
    log = structlog.get_logger("crm").bind(cloudlet=orders.cloudlet, version=orders.version)
    token = token_file_of(settings, orders.cloudlet)
    if token.there():
        token.key()  # fails at once if the token is unusable
    platform = Platform(platform_file(settings.home, orders.cloudlet))
    if orders.faults is not None:
        platform.set_faults(orders.faults)
    handover = Handover(platform, orders.version, _command(orders), orders.takeover)
    handover.register()
    if orders.takeover and platform.fault("start", orders.cloudlet, orders.version, (CrmFaultKind.CRASH_BEFORE,)):
        log.error("ending at once, as the fault script says")
        return 1
    client = await connect_temporal(settings.home, plugin())
    agent = Agent(client, orders.cloudlet, orders.version, platform, handover, token, orders.latency)
    for word in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(word, agent.stop)
    try:
        log.info("starting", platform=str(platform.file))
        await agent.run()
        log.info("stopped")
        return 0
    except GatheringFailed as failed:
        log.error("cannot serve this cloudlet", why=str(failed))
        return 1
    finally:
        platform.close()


async def stop_all(home: Path, cloudlet: str) -> list[int]:
    """Ends the CRM processes of a cloudlet on this machine. Returns their pids."""
    file = platform_file(home, cloudlet)
    if not file.exists():
        return []
    platform = Platform(file)
    found = [pid for pid in platform.pids() if is_crm(pid)]
    for pid in found:
        await end(pid)
    platform.close()
    return found


def _command(orders: CrmOptions) -> list[str]:
    """Returns the command line of this program, to which a version is added for an upgrade."""
    words = [sys.executable, "-m", "workers.crm", "--cloudlet", orders.cloudlet]
    return [*words, "--latency", str(orders.latency)]


def fail_next_request(home: Path, cloudlet: str, verb: str, message: str) -> None:
    """Makes the next request with this verb to the cloudlet's CRM fail, once."""
    platform = Platform(platform_file(home, cloudlet))
    platform.add_fault(
        CrmFault.model_validate({"kind": CrmFaultKind.FAIL, "verb": verb, "message": message, "times": 1})
    )
    platform.close()


def main() -> None:
    """Runs the CRM of the command line, and exits with its code."""
    parser = argparse.ArgumentParser(prog="python -m workers.crm", description=__doc__)
    parser.add_argument("--cloudlet", required=True, type=check_path)
    parser.add_argument("--version", default="v1")
    parser.add_argument("--latency", type=float, default=0.3)
    parser.add_argument("--takeover", default="")
    try:
        code = asyncio.run(serve(Settings(), CrmOptions(**vars(parser.parse_args()))))
    except Refused as refused:
        sys.stderr.write(f"{refused.message}\n  {refused.hint}\n")
        code = 2
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a normal exit may abort while the SDK's threads still run


if __name__ == "__main__":
    main()
