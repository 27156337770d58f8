"""A gateway whose database role may only read: the rights that docs/gateway.md gives it are enough, and no more."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
import sqlalchemy as sa

from store.engine import Database
from tests.patience import PATIENCE
from tests.test_dialects.waiting import DYNAMIC, GROUPS, LATER, PHYSICAL, gate_open
from tests.test_platform.site import Site

DOCS = Path(__file__).parents[2] / "docs" / "gateway.md"
GRANTS = re.compile(r"```sql\n(.+?)```", re.DOTALL)
MCI = "/v1/objects/ns:default:mci:web"
# What the gateway answers from the store, in every dialect.
READS = (
    "/v1/kinds",
    "/v1/objects?kind=mci&prefix=ns:default",
    MCI,
    f"{MCI}/tree",
    f"{MCI}/history",
    f"{MCI}/locks",
    f"{MCI}/explain",
    "/reservation/v1/leases",
    "/reservation/v1/os-hosts",
    "/reservation/v1/os-hosts/allocations",
    "/reservation/v1/os-hosts/properties?detail=True",
    "/tumblebug/ns",
    "/tumblebug/ns/default/mci",
    "/tumblebug/ns/default/infra?option=status",
)
OPENVCLOUD_READS = ("machines/list", "cloudspaces/list", "disks/list", "images/list", "sizes/list", "locations/list")


@pytest.fixture
async def reader(site: Site) -> AsyncIterator[str]:
    """The URL of the site's store for a role that has the rights of docs/gateway.md and no others."""
    role = f"ratchet_reader_{uuid4().hex[:12]}"
    (grants,) = GRANTS.findall(DOCS.read_text())
    async with site.worker():
        with site.database.engine.begin() as connection:
            connection.exec_driver_sql(f"CREATE ROLE {role} LOGIN PASSWORD 'planted'")
            connection.exec_driver_sql(grants.replace("ratchet_reader", role))
        owner = sa.make_url(site.environment["RATCHET_STORE_URL"])
        yield owner.set(username=role, password="planted").render_as_string(hide_password=False)
    with site.database.engine.begin() as connection:
        connection.exec_driver_sql(f"DROP OWNED BY {role}")
        connection.exec_driver_sql(f"DROP ROLE {role}")


async def test_a_role_that_only_reads_is_enough_for_the_gateway(site: Site, reader: str) -> None:
    database = Database(reader)
    with pytest.raises(sa.exc.ProgrammingError, match="permission denied"), database.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM objects")
    database.close()
    site.environment["RATCHET_STORE_URL"] = reader
    async with gate_open(site) as gate, httpx.AsyncClient(base_url=gate.url, timeout=PATIENCE) as http:
        await _write_in_every_dialect(http)
        for route in READS:
            answer = await http.get(route)
            assert answer.is_success, (route, answer.status_code, answer.text)
        for call in OPENVCLOUD_READS:
            answer = await http.post(f"/restmachine/cloudapi/{call}", json={"accountId": 1, "cloudspaceId": 1})
            assert answer.status_code in (200, 404), (call, answer.status_code, answer.text)
        async with http.stream("GET", "/v1/events", headers={"Last-Event-ID": "0"}) as events:
            async for line in events.aiter_lines():
                if "ns:default:mci:web" in line and "Running" in line:
                    break


async def _write_in_every_dialect(http: httpx.AsyncClient) -> None:
    """Requests go through Temporal, so they need no right in the store."""
    requests = (
        (f"{MCI}/actions/create", {"spec": {"subGroups": GROUPS}}),
        ("/tumblebug/ns/default/mciDynamic", {"name": "old", "subGroups": DYNAMIC}),
        ("/reservation/v1/os-hosts", {"name": "h1", "gpu": "a100"}),
        ("/reservation/v1/leases", {"name": "tomorrow", **LATER, "reservations": PHYSICAL}),
    )
    for route, body in requests:
        answer = await http.post(route, json=body)
        assert answer.is_success, (route, answer.status_code, answer.text)


async def test_what_the_policy_forbids_is_refused_though_it_cannot_be_recorded(site: Site, reader: str) -> None:
    policy = site.home / "policy.yaml"
    policy.write_text('{roles: {web: {kinds: ["*"], actions: ["*"], paths: ["ns:default"]}}, users: {"*": [web]}}')
    site.environment |= {"RATCHET_STORE_URL": reader, "RATCHET_POLICY_FILE": str(policy)}
    async with gate_open(site) as gate, httpx.AsyncClient(base_url=gate.url, timeout=PATIENCE) as http:
        denied = await http.get("/v1/objects/ns:other:mci:web")
        assert (denied.status_code, denied.json()["title"]) == (403, "Forbidden"), denied.text
