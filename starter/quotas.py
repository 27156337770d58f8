"""`starter quota list`: what each tenant uses, and what it is allowed."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from domain import wire
from domain.quotas import QuotaQuery, QuotasView, TenantQuota
from starter.errors import ExitCode
from starter.flags import OutputOption, WatchOption
from starter.output import Sheet, print_sheet
from starter.session import open_client
from starter.watch import run_once_or_watch

quota_app = App(name="quota", help="How much each tenant may have and do.")


@quota_app.command(name="list")
async def list_quotas(
    tenant: Annotated[str, Parameter(help="One tenant, such as ns:default; without it, all.")] = "",
    /,
    *,
    watch: WatchOption = False,
    output: OutputOption = "table",
) -> ExitCode:
    """List what tenants use and may use: objects, VMs, open actions, requests in a minute.

    Example: starter quota list ns:default
    """

    async def show() -> ExitCode:
        rows = await _read_quotas(tenant)
        header = ("TENANT", "OBJECTS", "VMS", "OPEN ACTIONS", "REQUESTS/MIN")
        data = [row.model_dump(mode="json") for row in rows]
        print_sheet(Sheet(data, header, [_cells(row) for row in rows], [row.used.tenant for row in rows]), output)
        return ExitCode.DONE

    return await run_once_or_watch(watch, show)


async def _read_quotas(tenant: str) -> list[TenantQuota]:
    """Reads all pages."""
    rows: list[TenantQuota] = []
    after = ""
    async with open_client() as client:
        while True:
            page = await client.run_query(wire.READ_QUOTAS, QuotaQuery(tenant=tenant, after=after), QuotasView)
            rows += page.tenants
            after = page.after
            if not after:
                return rows


def _cells(row: TenantQuota) -> tuple[str, ...]:
    used, allowed = row.used, row.allowed
    return (
        used.tenant,
        _use(used.objects, allowed.objects),
        _use(used.vms, allowed.vms),
        _use(used.open_actions, allowed.open_actions),
        _use(used.requests, allowed.requests_per_minute) if allowed.requests_per_minute else "-",
    )


def _use(used: int, limit: int | None) -> str:
    return f"{used}" if limit is None else f"{used} of {limit}"
