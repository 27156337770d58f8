"""An inventory with short methods for tests, and a clock that ticks at each read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import sqlalchemy as sa

from activities.access import Authorizer
from domain.mci.messages import AddVms
from domain.model import (
    ActionEnding,
    ActionResult,
    Admission,
    BeginRequest,
    Grant,
    HistoryLine,
    Outcome,
    Refusal,
    Request,
    TargetLanding,
)
from domain.paths import kind_of
from store.engine import Database
from store.inventory import SqlInventory
from store.mci.inventory import SqlMciStore
from store.schema import metadata
from workers.families import FAMILIES, merge_hooks

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NS = "ns:default"
WEB = f"{NS}:mci:web"
FRONT_1, FRONT_2 = f"{WEB}:vm:front-1", f"{WEB}:vm:front-2"

HOOKS = dict(merge_hooks(FAMILIES))  # for tests that call the store's functions themselves
EVERYBODY = Authorizer()  # without a policy

Dump = dict[str, list[tuple[Any, ...]]]

_runs = count(1)


def no_doubt(_key: str) -> str:
    """A check of proofs that has nothing against any message."""
    return ""


def group(name: str = "front", size: int = 2, csp: str = "aws", region: str = "eu-1") -> dict[str, Any]:
    return {"name": name, "subGroupSize": size, "csp": csp, "region": region}


def claim(
    path: str, action: str, run: str = "", at: datetime = NOON, started: datetime | None = None, **request: Any
) -> BeginRequest:
    """A claim of a run that nobody else has, unless one is named."""
    run = run or f"run-{next(_runs)}"
    return BeginRequest(request=Request(path=path, action=action, **request), run=run, at=at, started=started)


class StoreDriver:
    """An inventory of its own, with the hooks of every family."""

    def __init__(self, url: str) -> None:
        self.database = Database(url)
        self.hooks = dict(HOOKS)
        self.inventory = SqlInventory(self.database, self.hooks, EVERYBODY)
        self.book = SqlMciStore(self.database)
        self._ticks = count()

    def close(self) -> None:
        self.database.close()

    def now(self) -> datetime:
        return NOON + timedelta(seconds=next(self._ticks))

    async def begin(self, path: str, action: str, run: str = "", **request: Any) -> Admission:
        return await self.inventory.begin_action(claim(path, action, run, self.now(), **request))

    async def check(self, path: str, action: str, run: str = "", **request: Any) -> Admission:
        return await self.inventory.preview_admission(claim(path, action, run, self.now(), **request))

    async def grant(self, path: str, action: str, run: str = "", **request: Any) -> Grant:
        """Begin, which must succeed; a creation goes on until its VMs are there."""
        admission = await self.begin(path, action, run, **request)
        assert admission.grant, admission
        of_vms = kind_of(path) == "mci" and action == "create"
        return await self.born(admission.grant) if of_vms else admission.grant

    async def born(self, grant: Grant) -> Grant:
        """The grant of a creation, with the VMs that have come into being."""
        order = AddVms(path=grant.path, epoch=grant.epoch, action="create", at=self.now())
        found = await self.book.add_vms_to_action(order)
        return grant.model_copy(update={"chunks": found.chunks, "targets": found.targets})

    async def refusal(self, path: str, action: str, run: str = "", **request: Any) -> Refusal:
        """Begin, which must be refused."""
        admission = await self.begin(path, action, run, **request)
        assert admission.refusal, admission
        return admission.refusal

    async def land(self, grant: Grant, to: str, errors: Mapping[str, tuple[str, str]] | None = None) -> int:
        """Land every target of the action on `to`, except those for which a status and an error are given."""
        landed = 0
        for chunk in grant.chunks:
            targets = await self.inventory.list_targets(chunk)
            landings = [TargetLanding(target.path, to) for target in targets if target.path not in (errors or {})]
            told = [
                TargetLanding(target.path, errors[target.path][0], error=errors[target.path][1])
                for target in targets
                if errors and target.path in errors
            ]
            landed += await self.inventory.land_targets(chunk, landings + told, self.now())
        return landed

    async def finish(self, grant: Grant, result: ActionResult = ActionResult.SUCCEEDED, message: str = "") -> Outcome:
        ending = ActionEnding(
            epoch=grant.epoch, run=grant.run, path=grant.path, result=result, message=message, at=self.now()
        )
        return await self.inventory.finish_action(ending)

    async def act(self, path: str, action: str, to: str, **request: Any) -> Outcome:
        """A whole action in which everything goes well."""
        grant = await self.grant(path, action, **request)
        await self.land(grant, to)
        return await self.finish(grant)

    async def make(self, path: str = WEB, *groups: dict[str, Any]) -> Outcome:
        """An MCI that runs."""
        return await self.act(path, "create", "Running", spec={"subGroups": list(groups) or [group()]})

    async def status(self, path: str) -> str:
        return (await self.inventory.read_object(path)).status

    async def statuses(self, path: str = WEB) -> dict[str, str]:
        """The status of each member, by its name."""
        view = await self.inventory.read_object(path, members=True)
        return {member.path.rsplit(":", 1)[1]: member.status for member in view.members}

    async def told(self, path: str) -> list[tuple[str, str, str]]:
        """The object's history: action, from, to."""
        return [(line.action, line.source, line.to) for line in await self.inventory.read_history(path, limit=1_000)]

    async def last(self, path: str) -> HistoryLine:
        return (await self.inventory.read_history(path, limit=1))[0]

    async def dump(self) -> Dump:
        """Everything that is stored."""
        return await self.database.run_transaction(dumped)


def dumped(connection: sa.Connection) -> Dump:
    return {
        name: [tuple(row) for row in connection.execute(sa.select(table).order_by(*table.primary_key))]
        for name, table in metadata.tables.items()
    }


def blocked(driver: StoreDriver) -> bool:
    """Does a statement of this database, which is PostgreSQL, wait for a lock?"""
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    return bool(
        driver.database.run_transaction_blocking(lambda connection: connection.execute(sa.text(query)).scalar())
    )
