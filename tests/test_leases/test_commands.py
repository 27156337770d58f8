"""Leases from the command line: what is typed, what is printed, what is refused and why."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from domain.leases.messages import CalendarView, HostOccupancy, Occupancy
from domain.leases.specs import LeaseSpec
from starter.errors import ExitCode
from starter.leases.calendar import draw_calendar
from tests.test_cli.conftest import cli  # noqa: F401  the commands, on the shared server
from tests.test_cli.shell import EXAMPLES, Cli
from tests.test_leases.tenant import Tenant


async def test_a_lease_is_booked_shown_drawn_changed_and_deleted(cli: Cli, tenant: Tenant) -> None:  # noqa: F811
    pool = tenant.name
    added = await cli(f"host add {pool}/h1 --vcpus 32 --labels gpu=a100")
    assert (added.code, added.err.count("error")) == (ExitCode.DONE, 0)
    created = await cli(f"lease create {pool}/l1 --hosts 1 --start now --end +2h --pool {pool} --name")
    assert created.code == ExitCode.USAGE
    created = await cli(f"lease create {pool}/l1 --hosts 1 --start now --end +2h --pool {pool}")
    assert created.code == ExitCode.DONE, created.err
    await tenant.until_status("ACTIVE")
    shown = (await cli(f"lease show {pool}/l1")).out.splitlines()
    assert shown[0] == f"{pool}/l1  ACTIVE"
    assert shown[-1].split() == ["r1", "active", "physical:host", "h1", "-", "-"]
    assert (await cli(f"lease status {pool}/l1")).out.splitlines() == shown
    explained = (await cli(f"explain {pool}/l1")).out
    assert "holds      h1, reservation r1\n" in explained
    assert "you can    update, end, delete; such as: starter lease " in explained
    events = (await cli(f"lease events {pool}/l1")).out
    assert [line.split()[:2] for line in events.splitlines()[1:]] == [
        ["start_lease", "DONE"],
        ["before_end_lease", "UNDONE"],
        ["end_lease", "UNDONE"],
    ]
    drawing = (await cli(f"lease calendar --pool {pool} --end +4h")).out
    assert "h1    UP      AAAA" in drawing
    assert f"A  {pool}/l1" in drawing
    updated = await cli(f"lease update {pool}/l1 --end +4h --name", "mine and yours")
    assert updated.code == ExitCode.DONE, updated.err
    assert "mine and yours" in (await cli(f"lease list --prefix {pool}")).out
    assert (await cli(f"lease delete {pool}/l1 --yes")).code == ExitCode.DONE
    assert (await cli(f"lease show {pool}/l1")).code == ExitCode.NOT_FOUND


async def test_a_lease_that_misses_a_host_says_so_and_what_helps_helps(cli: Cli, tenant: Tenant) -> None:  # noqa: F811
    pool = tenant.name
    await cli(f"host add {pool}/h1")
    await cli(f"lease create {pool}/l1 --hosts 1 --start 2099-01-01 --end 2099-01-02 --pool {pool}")
    await cli(f"host fail {pool}/h1")
    explained = (await cli(f"explain {pool}/l1")).out
    assert "missing    reservation r1 has 0 of 1 host: a host failed, and the pool has no other" in explained
    helps = f"add one: starter host add {pool}/h2; or, once it works: starter host recover {pool}/h1"
    assert helps in explained
    await cli(f"host add {pool}/h2")
    explained = (await cli(f"explain {pool}/l1")).out
    assert "missing" not in explained
    assert "holds      h2" in explained


async def test_a_dry_run_shows_what_an_update_changes(cli: Cli, tenant: Tenant) -> None:  # noqa: F811
    pool = tenant.name
    await cli(f"host add {pool}/h1")
    await cli(f"lease create {pool}/l1 --hosts 1 --start 2099-01-01 --end 2099-01-02 --pool {pool}")
    for words, changed in (
        (f"lease update {pool}/l1 --end 2099-01-03", "spec: end: 2099-01-02T00:00:00Z becomes 2099-01-03T00:00:00Z"),
        (f"host update {pool}/h1 --labels rack=8", "becomes {'rack': '8'}"),
    ):
        tried = await cli(f"{words} --dry-run")
        assert changed in tried.out, tried
    assert "2099-01-02" in (await cli(f"lease show {pool}/l1")).out
    refused = await cli(f"lease start {pool}/l1")
    assert refused.err.endswith(f"hint: to have it earlier: starter lease update {pool}/l1 --start now\n")


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        ("--hosts 1 --start +2h --end +1h", ExitCode.USAGE, "ends before it starts"),
        ("--hosts 1 --start +1h --end +1h", ExitCode.USAGE, "has no length"),
        ("--hosts 1 --start 2020-01-01 --end +1h", ExitCode.USAGE, "is in the past"),
        ("--hosts 1 --end +367d", ExitCode.USAGE, "the limit is 366 days"),
        ("--hosts 1 --end +2h --before-end +3h", ExitCode.USAGE, "is outside the lease"),
        ("--hosts 2 --end +2h", ExitCode.REFUSED, "2 wanted, room for 1"),
        ("--end +2h", ExitCode.USAGE, "say what to reserve"),
        ("--hosts 1 --end someday", ExitCode.USAGE, "bad end 'someday'"),
    ],
)
async def test_bad_requests_say_what_why_and_what_next(
    cli: Cli,  # noqa: F811
    tenant: Tenant,
    words: str,
    code: ExitCode,
    reason: str,
) -> None:
    await tenant.add_hosts("h1")
    ran = await cli(f"lease create {tenant.name}/l1 --pool {tenant.name} {words}")
    assert ran.code == code, ran.err
    assert reason in ran.err
    assert "hint:" in ran.err
    assert (await cli(f"lease show {tenant.name}/l1")).code == ExitCode.NOT_FOUND


async def test_a_file_with_an_unknown_resource_type_is_refused_with_those_that_there_are(
    cli: Cli,  # noqa: F811
    tenant: Tenant,
    tmp_path: Path,
) -> None:
    spec = tmp_path / "lease.yaml"
    spec.write_text("end: +2h\nreservations:\n  - resource_type: floppy\n")
    ran = await cli(f"lease create {tenant.name}/l1 -f", str(spec))
    assert ran.code == ExitCode.USAGE
    assert "'physical:host', 'virtual:instance', 'mci'" in ran.err


@pytest.mark.parametrize("name", ["lease-demo.yaml", "lease-mci.yaml"])
def test_the_examples_are_valid(name: str) -> None:
    LeaseSpec.model_validate(yaml.safe_load((EXAMPLES / name).read_text()))


async def test_the_calendar_is_data_for_programs(cli: Cli, tenant: Tenant) -> None:  # noqa: F811
    await tenant.add_hosts("h1")
    await tenant.create(start="+1h", end="+2h")
    found = json.loads((await cli(f"lease calendar --pool {tenant.name} -o json")).out)
    assert found["hosts"][0]["stretches"][0]["lease"] == tenant.lease()
    empty = await cli(f"lease calendar --pool {tenant.name}-none")
    assert "has no hosts; add one: starter host add" in empty.out
    assert (await cli(f"lease calendar --pool {tenant.name} --start +2h --end +1h")).code == ExitCode.USAGE


def test_the_drawing_shows_who_holds_what_when() -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)

    def held(lease: str, start: int, end: int) -> Occupancy:
        return Occupancy(
            lease=f"project:p:lease:{lease}",
            start=noon + timedelta(hours=start),
            end=noon + timedelta(hours=end),
            units=1,
            whole=True,
        )

    hosts = [
        HostOccupancy(host="h1", status="UP", stretches=[held("a", 0, 6), held("b", 6, 12)]),
        HostOccupancy(host="h2", status="DOWN", stretches=[held("b", 6, 24)]),
        HostOccupancy(host="h3", status="UP"),
    ]
    lines = draw_calendar(CalendarView(pool="p", start=noon, end=noon + timedelta(hours=24), hosts=hosts), 34)
    assert lines == [
        "pool p, from 2026-01-01 12:00 to 2026-01-02 12:00, a column is 1 h, times are UTC",
        "HOST  STATUS  |01-01 12:00|01-02 00:00",
        "h1    UP      AAAAAABBBBBB............",
        "h2    DOWN    xxxxxxBBBBBBBBBBBBBBBBBB",
        "h3    UP      ........................",
        "",
        "A  p/a  2026-01-01 12:00:00Z to 2026-01-01 18:00:00Z",
        "B  p/b  2026-01-01 18:00:00Z to 2026-01-02 12:00:00Z",
        ". free  + several within one column  x the host is not UP: it takes no lease",
    ]
