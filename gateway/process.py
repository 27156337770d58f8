"""A gateway process: connected to Temporal, reading the store itself where there is one."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from activities.oidc import RecordAttempt
from client.gateway import GatewayAddress, delete_gateway_file
from client.message_signer import make_message_signer
from client.session import connect
from client.storeregistry import read_registered_store
from domain.errors import Category, Refused
from gateway.app import build_gateway_app
from gateway.context import Gateway, ReadStatus
from gateway.dialects.prices import read_prices
from gateway.guard import LOOPBACK_HOSTS
from gateway.reads import GatewayClient
from gateway.server import serve_app
from gateway.settings import GatewaySettings
from gateway.tokens import CallerTokens, TokenFile
from store.migrate import newest_schema_version, read_schema_version
from workers import access
from workers.service import WorkerService
from workers.settings import redact_url


@asynccontextmanager
async def serve_in_worker_process(
    service: WorkerService, settings: GatewaySettings, ui: str, read_status: ReadStatus | None = None
) -> AsyncIterator[str]:
    """Serve in a worker's process while the block lasts, on another port if its own is taken; yields the URL."""
    client = GatewayClient(
        service.client,
        service.store_reads(in_worker_process=True),
        ui,
        service.authorizer,
        make_message_signer(settings, service.client.namespace),
        service.refusals,
    )
    token = secrets.token_urlsafe(32)
    record = service.inventory.record_access_attempt
    serving = _serve_gateway(client, settings, record, or_any_port=True, reads_token=token, read_status=read_status)
    async with serving as url:
        temporal = service.client.service_client.config.target_host
        GatewayAddress(url, temporal, service.client.namespace, token).save_address(settings.home)
        try:
            yield url
        finally:
            delete_gateway_file(settings.home)


@asynccontextmanager
async def serve_standalone(settings: GatewaySettings) -> AsyncIterator[tuple[str, str]]:
    """Serve in a process of its own while the block lasts; yields the URL, and where reads are answered."""
    async with connect(settings, "gateway") as ratchet:
        if not (settings.store_url or (settings.home / "inventory.db").exists()):
            client = GatewayClient(
                ratchet.client,
                ui=ratchet.ui,
                authorizer=access.make_authorizer(settings, ratchet.client.namespace),
                message_signer=ratchet.message_signer,
            )
            async with _serve_gateway(client, settings) as url:
                yield url, "a worker"
            return
        service = WorkerService(ratchet.client, settings)
        try:
            await _check_store(service)
            client = GatewayClient(
                ratchet.client,
                service.store_reads(),
                ratchet.ui,
                service.authorizer,
                ratchet.message_signer,
                service.refusals,
            )
            async with _serve_gateway(client, settings, service.inventory.record_access_attempt) as url:
                yield url, redact_url(settings.store_database_url())
        finally:
            await service.close()


@asynccontextmanager
async def _serve_gateway(
    ratchet: GatewayClient,
    settings: GatewaySettings,
    record: RecordAttempt | None = None,
    or_any_port: bool = False,
    reads_token: str = "",
    read_status: ReadStatus | None = None,
) -> AsyncIterator[str]:
    oidc = access.make_oidc_verifier(settings, record)
    wants_tokens = settings.gateway_tokens is not None or (oidc is not None and oidc.has_issuers)
    if settings.gateway_host not in LOOPBACK_HOSTS and not wants_tokens:
        raise Refused(
            Category.INVALID,
            f"the gateway would answer anybody who reaches {settings.gateway_host}",
            "set RATCHET_GATEWAY_TOKENS, list an OIDC issuer, or set RATCHET_GATEWAY_HOST=127.0.0.1",
        )
    file = TokenFile(settings.gateway_tokens) if settings.gateway_tokens else None
    tokens = CallerTokens(file, oidc) if wants_tokens else None
    hosts = frozenset({*settings.gateway_hosts, settings.gateway_host})
    gateway = Gateway(
        ratchet,
        tokens,
        reads_token,
        hosts,
        pool=settings.gateway_pool,
        project=settings.gateway_project,
        public_url=settings.gateway_url.rstrip("/"),
        origins=frozenset(settings.gateway_origins),
        same_request_seconds=settings.gateway_same_request,
        prices=read_prices(settings.gateway_prices) if settings.gateway_prices else {},
        read_status=read_status,
    )
    try:
        async with serve_app(
            build_gateway_app(gateway), settings.gateway_host, settings.gateway_port, or_any_port
        ) as url:
            yield url
    finally:
        await gateway.crm_door.close()


async def _check_store(service: WorkerService) -> None:
    """Refuse a store of another schema, or one that the workers do not use: its answers would be wrong."""
    found = await asyncio.to_thread(read_schema_version, service.database)
    if found != newest_schema_version():
        raise Refused(
            Category.INVALID,
            f"the store is at schema {found or 'none'}, this gateway knows {newest_schema_version()}",
            "starter migrate, or use the gateway of the workers' version",
        )
    own, used = (await service.bind_to_store()).id, await read_registered_store(service.client)
    if used not in (None, own):
        raise Refused(
            Category.INVALID,
            f"the workers use the store {used}, but {redact_url(service.settings.store_database_url())} is "
            f"the store {own}",
            "set RATCHET_STORE_URL as on the workers",
        )
