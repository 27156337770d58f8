"""Audit of leases: against the relationship table, against each other, and against the hosts' tenants."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from domain.leases.messages import HostOccupancy, LeaseView
from domain.leases.tables import ReservationStatus, contradiction
from domain.model import BrokenPromise

PAGE = 200


class LeaseSource(Protocol):
    """The inventory's side of the audit, in pages: leases, and booked periods by host."""

    async def leases(self, prefix: str, after: str, limit: int) -> list[LeaseView]: ...

    async def stretches(self, prefix: str, after: str, limit: int) -> list[HostOccupancy]: ...


class TenantRow(Protocol):
    """A tenancy as the host provider reports it: a host, and the reservation that holds it."""

    @property
    def host(self) -> str: ...

    @property
    def reservation(self) -> str: ...


class TenantSource(Protocol):
    """The provider's side of the audit: which reservation holds which host."""

    async def held(self, reservations: Sequence[str]) -> Sequence[TenantRow]:
        """Returns the tenancies of these reservations."""
        ...


class LeaseAudit:
    """Audits I3 (each host is held by the right reservation, and by one) and I4 (relationship table) for leases."""

    def __init__(self, leases: LeaseSource, books: TenantSource) -> None:
        self._leases = leases
        self._books = books

    async def audit(self, prefix: str) -> tuple[list[BrokenPromise], int]:
        """Returns violations at or below a path, and the number of hosts held there."""
        findings, size, page = list[BrokenPromise](), 0, list[LeaseView]()
        while page := await self._leases.leases(prefix, page[-1].path if page else "", PAGE):
            findings += [finding for lease in page for finding in _related(lease)]
            paths = [f"{lease.path}:reservation:{each.id}" for lease in page for each in lease.reservations]
            held = {(each.host, each.reservation) for each in await self._books.held(paths)}
            findings += _differences({pair for lease in page for pair in _wanted(lease)}, held)
            size += len(held)
        hosts: list[HostOccupancy] = []
        while hosts := await self._leases.stretches(prefix, hosts[-1].host if hosts else "", PAGE):
            findings += doubled(hosts)
        return findings, size


def _differences(wanted: set[tuple[str, str]], held: set[tuple[str, str]]) -> Iterable[BrokenPromise]:
    """Compares what the hosts' provider has with the records. What no record knows, the listing of orphans tells."""
    for host, path in sorted(wanted - held):
        yield BrokenPromise("I3", path, f"should hold {host}, and does not")
    for host, path in sorted(held - wanted):
        yield BrokenPromise("I3", path, f"holds {host}, and should not")


def _related(lease: LeaseView) -> Iterable[BrokenPromise]:
    events = {event.name: event.status for event in lease.events}
    wrong = contradiction(lease.status, [each.status for each in lease.reservations], events)
    return [BrokenPromise("I4", lease.path, wrong)] if wrong else []


def _wanted(lease: LeaseView) -> set[tuple[str, str]]:
    return {
        (f"pool:{lease.pool}:host:{host}", f"{lease.path}:reservation:{each.id}")
        for each in lease.reservations
        if each.status == ReservationStatus.ACTIVE
        for host in each.hosts
    }


def doubled(hosts: Sequence[HostOccupancy]) -> Iterable[BrokenPromise]:
    """Yields whole hosts that two leases have booked for the same time."""
    for line in hosts:
        whole = sorted((each for each in line.stretches if each.whole), key=lambda each: each.start)
        last = None  # the period so far that ends last
        for each in whole:
            if last and each.start < last.end and each.lease != last.lease:  # its own: an update moves it
                yield BrokenPromise("I3", line.host, f"is booked twice: {last.lease} and {each.lease}")
            last = each if last is None else max(last, each, key=lambda one: one.end)
