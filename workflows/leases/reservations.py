"""The types of resources that can be reserved, and how each starts and ends. A new type is a row here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from activities.refusals import refusal_of_error
    from domain import wire
    from domain.errors import Category, format_one_line
    from domain.leases import boundaries
    from domain.leases.boundaries import ReservationErrors
    from domain.leases.messages import HoldingsToReach, ReservationWork
    from domain.model import Grant, ObjectView, ReadQuery, Request
    from workflows.calls import run_child_action
    from workflows.leases import calls

BUSY_PATIENCE = timedelta(minutes=5)  # for another action on the MCI to end


RunReservations = Callable[[Grant, Sequence[ReservationWork]], Awaitable[ReservationErrors]]
RunMci = Callable[[Grant, ReservationWork], Awaitable[str]]


async def start_all_reservations(grant: Grant, work: Sequence[ReservationWork], done: ReservationErrors) -> None:
    """Starts reservations, all types in parallel. The result of each is put into `done` as soon as it is known."""
    await _run_all(grant, work, done, lambda kind: kind.start)


async def end_all_reservations(grant: Grant, work: Sequence[ReservationWork], done: ReservationErrors) -> None:
    """Ends reservations, all types in parallel. The result of each is put into `done` as soon as it is known."""
    await _run_all(grant, work, done, lambda kind: kind.end)


async def _run_all(
    grant: Grant,
    work: Sequence[ReservationWork],
    done: ReservationErrors,
    step: Callable[[ReservationType], RunReservations],
) -> None:
    groups = [(kind, [part for part in work if part.resource_type in kind.resources]) for kind in RESERVATION_TYPES]
    await asyncio.gather(*(_run_reservation_group(step(kind), grant, group, done) for kind, group in groups if group))


async def _run_reservation_group(
    run: RunReservations, grant: Grant, group: list[ReservationWork], done: ReservationErrors
) -> None:
    try:
        errors = await run(grant, group)
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise
        errors = dict.fromkeys((reservation.path for reservation in group), format_one_line(error.cause or error))
    done.update({reservation.path: errors.get(reservation.path, "") for reservation in group})


async def _hand_over_hosts(grant: Grant, work: Sequence[ReservationWork], want: HoldingsToReach) -> ReservationErrors:
    tried = all(reservation.tried for reservation in work)
    return (await calls.hand_over(grant, [reservation.path for reservation in work], want, tried)).errors


async def _run_mcis(grant: Grant, work: Sequence[ReservationWork], run: RunMci) -> ReservationErrors:
    """Runs normal actions as child workflows: other requests for the same MCI get 409 meanwhile."""
    errors = await asyncio.gather(*(run(grant, reservation) for reservation in work))
    return {reservation.path: error for reservation, error in zip(work, errors, strict=True) if error}


async def _start_mci(grant: Grant, reservation: ReservationWork) -> str:
    mci = await _read_mci(reservation.mci)
    if mci is None and reservation.spec is None:
        return f"there is no {reservation.mci}, and no spec to create it from"
    if mci is None:
        return await _run_mci_action(grant, reservation, "create", reservation.spec)
    if mci.counts.get("Suspended"):
        return await _run_mci_action(grant, reservation, "resume")
    running = bool(mci.counts) and set(mci.counts) == {"Running"}
    return "" if running else f"{reservation.mci} is {mci.status}: it can be neither created nor resumed"


async def _end_mci(grant: Grant, reservation: ReservationWork) -> str:
    mci = await _read_mci(reservation.mci) if reservation.status != "pending" else None
    if mci is None or (reservation.on_end == "suspend" and not mci.counts.get("Running")):
        return ""
    error = await _run_mci_action(grant, reservation, reservation.on_end)
    if error and reservation.on_end == "terminate":  # nothing could be: for example only failed VMs are left
        return await _run_mci_action(grant, reservation, "delete")
    return error


async def _read_mci(path: str) -> ObjectView | None:
    """Returns the stored MCI, or None."""
    try:
        view: ObjectView = await workflow.execute_activity(
            wire.READ_OBJECT,
            ReadQuery(path=path),
            result_type=ObjectView,
            start_to_close_timeout=timedelta(seconds=10),
            summary=f"how is {path}?",
        )
    except ActivityError as error:
        refusal = refusal_of_error(error.cause)
        if refusal and refusal.category is Category.NOT_FOUND:
            return None
        raise
    return view


async def _run_mci_action(
    grant: Grant, reservation: ReservationWork, action: str, spec: dict[str, Any] | None = None
) -> str:
    """Carries out a normal action on the MCI. Returns the error, or an empty string."""
    path = reservation.mci
    by = {"requested_by": grant.path, "on_behalf_of": grant.principal, "reason": f"for {reservation.path}"}
    request = Request(path=path, action=action, spec=spec, **by)
    why = await run_child_action(request, busy_for=BUSY_PATIENCE)
    return f"{path}: {why}" if why else ""


class ReservationType(NamedTuple):
    """One type of resource: how its reservations start and end. Both are repeatable, and return the errors."""

    resources: Sequence[str]
    start: RunReservations
    end: RunReservations


RESERVATION_TYPES = (
    ReservationType(
        boundaries.HOST_RESOURCE_TYPES,
        partial(_hand_over_hosts, want=HoldingsToReach.ALL),
        partial(_hand_over_hosts, want=HoldingsToReach.NOTHING),
    ),
    ReservationType(("mci",), partial(_run_mcis, run=_start_mci), partial(_run_mcis, run=_end_mci)),
)
