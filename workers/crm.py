"""The reference CRM as a process: `starter crm run`, or `python -m workers.crm`, which starts faster."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import structlog

from client.connection import connect_temporal
from client.payloads import data_converter
from domain.edge.faults import CrmFault, CrmFaultKind
from domain.errors import Category, Refused
from domain.paths import check_path, name_of, parent_of
from domain.services.definition import BackendName
from domain.simulated import simulated_provider_refusal
from domain.wire import SIMULATED
from providers.edge.apps import CloudletApps
from providers.edge.crm import CloudletReadFailed, ReferenceCrm
from providers.edge.gatewaycrm import GatewayControllerClient, GatewayCrm
from providers.edge.handover import CrmHandover, end_process, is_crm_process
from providers.edge.platform import CloudletPlatform
from providers.edge.token import ControllerKeys, CrmToken
from workers import logs
from workers.cloudletapps import supervise_apps
from workers.datafolder import secure_data_folder
from workers.plugin import temporal_plugin
from workers.settings import WorkerSettings


@dataclass(frozen=True)
class CrmOptions:
    """The command-line options of a CRM process."""

    cloudlet: str
    version: str = "v1"
    latency: float = 0.3
    takeover: str = ""  # the version to end once this CRM can serve
    faults: tuple[CrmFault, ...] | None = None
    gateway: str = ""  # the URL of a gateway, for a CRM that does not reach Temporal
    backend: BackendName = "simulated"  # what runs its apps


def platform_file(home: Path, cloudlet: str) -> Path:
    """Returns the file of a cloudlet's simulated platform: a folder per organization, as names may contain dashes."""
    return home / "crm" / name_of(str(parent_of(cloudlet))) / f"{name_of(cloudlet)}.db"


def token_of_cloudlet(settings: WorkerSettings, cloudlet: str) -> CrmToken:
    """Returns the token of a cloudlet's CRM: from the settings, or beside its platform file."""
    if settings.crm_token_file:
        return CrmToken(settings.crm_token_file, required=True)
    return CrmToken(platform_file(settings.home, cloudlet).with_suffix(".token"))


async def serve_crm(settings: WorkerSettings, options: CrmOptions) -> int:
    """Runs a CRM until it is told to stop. Returns the exit code: 0, or 1 if the cloudlet cannot be served."""
    if options.backend == SIMULATED and settings.simulated == "off":
        raise simulated_provider_refusal("the platform of this reference CRM")  # before it leaves a file
    secure_data_folder(settings.home)
    logs.configure_logging(settings.log_level, settings.log_format)
    log = structlog.get_logger("crm").bind(cloudlet=options.cloudlet, version=options.version)
    token = token_of_cloudlet(settings, options.cloudlet)
    if token.exists():
        token.public_key()  # fails at once if the token is unusable
    platform = CloudletPlatform(platform_file(settings.home, options.cloudlet))
    if options.faults is not None:
        platform.set_faults(options.faults)
    handover = CrmHandover(platform, options.version, _crm_command(options), options.takeover)
    handover.register_process()
    if options.takeover and platform.take_matching_fault(
        "start", options.cloudlet, options.version, (CrmFaultKind.CRASH_BEFORE,)
    ):
        log.error("ending at once, as the fault script says")
        return 1
    try:
        async with supervise_apps(settings, options.cloudlet, options.backend, platform) as apps:
            agent = await _make_agent(settings, options, platform, handover, token, apps)
            for word in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(word, agent.request_stop)
            log.info("starting", platform=str(platform.file), backend=options.backend)
            await agent.serve_until_stopped()
            log.info("stopped")
            return 0
    except CloudletReadFailed as failed:
        log.error("cannot serve this cloudlet", why=str(failed))
        return 1
    finally:
        platform.close()


async def _make_agent(
    settings: WorkerSettings,
    options: CrmOptions,
    platform: CloudletPlatform,
    handover: CrmHandover,
    token: CrmToken,
    apps: CloudletApps | None,
) -> ReferenceCrm:
    latency = 0.0 if apps else options.latency
    about = (options.cloudlet, options.version, platform, handover, token, latency)
    controllers = ControllerKeys(settings.controller_keys)
    if not options.gateway:
        return ReferenceCrm(
            await connect_temporal(settings.home, temporal_plugin(payloads=data_converter(settings))),
            *about,
            apps=apps,
            controllers=controllers,
        )
    if not token.exists():
        hint = (
            "starter crm token --cloudlet ORG/NAME, and give its key to the cloudlet: starter cloudlet rekey ORG/NAME"
        )
        raise Refused(Category.INVALID, "a CRM over HTTP needs a token: it is how the gateway knows it", hint)
    return GatewayCrm(
        None, *about, GatewayControllerClient(options.gateway, options.cloudlet, token), apps, controllers
    )


async def stop_crm_processes(home: Path, cloudlet: str) -> list[int]:
    """Ends the CRM processes of a cloudlet on this machine. Returns their pids."""
    file = platform_file(home, cloudlet)
    if not file.exists():
        return []
    with closing(CloudletPlatform(file)) as platform:
        found = [pid for pid in platform.list_crm_pids() if is_crm_process(pid)]
        for pid in found:
            await end_process(pid)
    return found


def _crm_command(options: CrmOptions) -> list[str]:
    """Returns the command line of this program, to which a version is added for an upgrade."""
    words = [sys.executable, "-m", "workers.crm", "--cloudlet", options.cloudlet]
    gateway = ["--gateway", options.gateway] if options.gateway else []
    return [*words, "--latency", str(options.latency), "--backend", options.backend, *gateway]


def fail_next_request(home: Path, cloudlet: str, verb: str, message: str) -> None:
    """Makes the next request with this verb to the cloudlet's CRM fail, once."""
    fault = CrmFault.model_validate({"kind": CrmFaultKind.FAIL, "verb": verb, "message": message, "times": 1})
    with closing(CloudletPlatform(platform_file(home, cloudlet))) as platform:
        platform.add_fault(fault)


def run_crm_command() -> None:
    """Runs the CRM of the command line, and exits with its code."""
    os.umask(0o077)
    parser = argparse.ArgumentParser(prog="python -m workers.crm", description=__doc__)
    parser.add_argument("--cloudlet", required=True, type=check_path)
    parser.add_argument("--version", default="v1")
    parser.add_argument("--latency", type=float, default=0.3)
    parser.add_argument("--takeover", default="")
    parser.add_argument("--gateway", default="")
    parser.add_argument("--backend", default=SIMULATED, choices=get_args(BackendName))
    try:
        code = asyncio.run(serve_crm(WorkerSettings(), CrmOptions(**vars(parser.parse_args()))))
    except Refused as refused:
        sys.stderr.write(f"{refused.message}\n  {refused.hint}\n")
        code = 2
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a normal exit may abort while the SDK's threads still run


if __name__ == "__main__":
    run_crm_command()
