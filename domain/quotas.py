"""Quotas: how much a tenant may have and do, and how much it uses. begin decides in its transaction."""

from __future__ import annotations

from math import ceil
from typing import Annotated

from pydantic import Field

from domain.errors import Category, Refused, format_count
from domain.model import FrozenModel, SignedMessage

RAISED_BY = "the operator of the workers may raise it, in RATCHET_QUOTAS_FILE; see: starter quota list"
OPEN_ACTIONS = "open actions"
OPEN_ACTION_SECONDS = 1  # after which one may have ended, and asking again makes sense
WINDOW_MICROS = 60_000_000

QuotaLimit = Annotated[int, Field(ge=0, le=1_000_000_000)]


class Quota(FrozenModel):
    """The limits of one tenant. None: no limit."""

    objects: QuotaLimit | None = None
    vms: QuotaLimit | None = None
    open_actions: QuotaLimit | None = None
    requests_per_minute: Annotated[int, Field(ge=1, le=1_000_000)] | None = None


class QuotaUse(FrozenModel):
    """How much of its quotas a tenant uses."""

    tenant: str
    objects: int = 0
    vms: int = 0
    open_actions: int = 0
    requests: int = 0  # of the last minute, as the rate counts them


class TenantQuota(FrozenModel):
    """What a tenant uses, and what it is allowed."""

    used: QuotaUse
    allowed: Quota = Quota()


class QuotaQuery(SignedMessage):
    """Asks for tenants' quotas: of one tenant, or of a page of tenants after one."""

    tenant: str = ""
    after: str = ""
    limit: Annotated[int, Field(ge=1, le=500)] = 100


class QuotasView(FrozenModel):
    """A page of tenants; `after` is where the next page begins, empty at the end."""

    tenants: list[TenantQuota] = []
    after: str = ""


def check_room(quota: Quota, used: QuotaUse, objects: int, vms: int, wants_turn: bool) -> None:
    """Raises Refused if an action that adds so many objects and VMs goes beyond a limit of its tenant."""
    wanted = (
        ("objects", quota.objects, used.objects, objects),
        ("VMs", quota.vms, used.vms, vms),
        (OPEN_ACTIONS, quota.open_actions, used.open_actions, 1 if wants_turn else 0),
    )
    for what, limit, now, more in wanted:
        if limit is not None and more and now + more > limit:
            message = f"{used.tenant} has {now} of {limit} {what}, and this needs {more} more"
            later = OPEN_ACTION_SECONDS if what == OPEN_ACTIONS else 0
            raise Refused(Category.QUOTA, message, RAISED_BY, retry_after=later)


def next_turn(tenant: str, per_minute: int, taken_until: int, now: int) -> int:
    """Counts a request: returns until when the tenant's minute is taken, in microseconds; refuses one too many.

    A whole minute's requests may come at once; then one is free every 60 s / `per_minute`.
    """
    until = max(taken_until, now) + WINDOW_MICROS // per_minute
    if until - now > WINDOW_MICROS:
        seconds = ceil((until - now - WINDOW_MICROS) / 1_000_000)
        message = f"{tenant} has made {format_count(per_minute, 'request')} in a minute, and may make {per_minute}"
        hint = f"ask again in {seconds} s; {RAISED_BY}"
        raise Refused(Category.QUOTA, message, hint, retry_after=seconds, pace=60 / per_minute)
    return until
