"""Random bookings on few hosts: no host for two leases, and no refusal while there is room."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from domain.model import ActionEnding, ActionResult, Admission, Grant
from store import begin, finish
from store.engine import Database
from store.leases.tables import allocations
from tests.test_store.driver import EVERYBODY, HOOKS, NOON, claim

HOURS = 12
_pools = count(1)

_TERMS = st.tuples(st.integers(1, HOURS - 1), st.integers(1, 6))
_SIZES = st.tuples(st.integers(1, 3), st.integers(0, 2))
_REQUESTS = st.lists(
    st.one_of(
        st.tuples(st.just("create"), _TERMS, _SIZES, st.booleans()),
        st.tuples(st.just("move"), _TERMS, _SIZES, st.integers(0, 9)),
        st.tuples(st.just("delete"), st.just((0, 0)), st.just((0, 0)), st.integers(0, 9)),
    ),
    max_size=14,
)


@pytest.fixture
def database(sqlite_url: str) -> Iterator[Database]:
    database = Database(sqlite_url)
    yield database
    database.close()


@settings(
    max_examples=settings().max_examples * 2 // 5,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(plain=st.integers(0, 3), fast=st.integers(0, 2), requests=_REQUESTS)
def test_no_host_is_booked_twice_and_no_feasible_request_is_refused(
    database: Database, plain: int, fast: int, requests: list[Any]
) -> None:
    site = PoolModel(database, f"p{next(_pools)}")
    for n in range(plain + fast):
        site.add_host(f"h{n}", fast=n >= plain)
    for what, dates, sizes, more in requests:
        site.play(what, dates, sizes, more)
        site.check()


class PoolModel:
    """A pool, and a plain model of it: which leases there are, and which hours of which host are whose."""

    def __init__(self, database: Database, pool: str) -> None:
        self.database = database
        self.pool = pool
        self.hosts: dict[str, bool] = {}
        self.leases: dict[str, tuple[range, bool]] = {}
        self._names = count(1)

    def add_host(self, name: str, fast: bool) -> None:
        path = f"pool:{self.pool}:host:{name}"
        self._done(self._begin(path, "add", {"labels": f"fast={str(fast).lower()}"}))
        self.hosts[path] = fast

    def play(self, what: str, dates: tuple[int, int], sizes: tuple[int, int], more: Any) -> None:
        if what == "create":
            self._create(dates, sizes, more)
        elif self.leases:
            name = sorted(self.leases)[more % len(self.leases)]
            if what == "move":
                self._move(name, dates, sizes)
            else:
                self._delete(name)

    def check(self) -> None:
        """Hour by hour: no host is anybody's twice, and every lease has what it was promised."""
        for hours in self._taken().values():
            assert len(hours) == len(set(hours)), "a host is booked twice"

    def _create(self, dates: tuple[int, int], sizes: tuple[int, int], fast: bool) -> None:
        name, hours = f"l{next(self._names)}", range(dates[0], dates[0] + dates[1])
        free = self._free(hours, fast, "")
        properties = {"fast": "true"} if fast else {}
        wanted = {"resource_type": "physical:host", "min": sizes[0], "max": sum(sizes)}
        spec = self._dates(hours) | {"reservations": [wanted | {"resource_properties": properties}]}
        admission = self._begin(self._path(name), "create", spec | {"pool": self.pool})
        self._judge(admission, free, sizes, name, hours, fast)

    def _move(self, name: str, dates: tuple[int, int], sizes: tuple[int, int]) -> None:
        hours, fast = range(dates[0], dates[0] + dates[1]), self.leases[name][1]
        free = self._free(hours, fast, name)
        size = {"id": "r1", "min": sizes[0], "max": sum(sizes)}
        admission = self._begin(self._path(name), "update", self._dates(hours) | {"reservations": [size]})
        self._judge(admission, free, sizes, name, hours, fast)

    def _judge(
        self, admission: Admission, free: int, sizes: tuple[int, int], name: str, hours: range, fast: bool
    ) -> None:
        if free < sizes[0]:
            assert admission.refusal, "granted, though there was no room"
            return
        assert admission.grant, f"refused, though {free} hosts were free: {admission.refusal}"
        self._done(admission)
        self.leases[name] = (hours, fast)
        mine = [host for host, taken in self._taken(name).items() if taken]
        assert len(mine) == min(free, sum(sizes))
        assert all(self.hosts[host] or not fast for host in mine), "a host without the property"

    def _delete(self, name: str) -> None:
        grant = self._begin(self._path(name), "delete", None).grant
        assert grant
        parts = ("reservation:r1", "event:start_lease", "event:before_end_lease", "event:end_lease")
        moves = [{"path": f"{grant.path}:{part}", "to": "None"} for part in parts]
        self._finish(grant, moves)
        del self.leases[name]

    def _free(self, hours: range, fast: bool, besides: str) -> int:
        """Hosts that nobody has in any of these hours."""
        taken = self._taken(besides=besides)
        fitting = [host for host, is_fast in self.hosts.items() if is_fast or not fast]
        return sum(1 for host in fitting if not set(taken[host]) & set(hours))

    def _taken(self, only: str = "", besides: str = "") -> dict[str, list[int]]:
        """The hours of each host that are somebody's, from the table itself."""
        hours: dict[str, list[int]] = {host: [] for host in self.hosts}
        query = sa.select(allocations).where(allocations.c.host.in_(list(self.hosts)))
        rows = self.database.run_transaction_blocking(lambda connection: connection.execute(query).all())
        for row in rows:
            mine = row.lease in ((self._path(only),) if only else map(self._path, self.leases))
            if mine and row.lease != self._path(besides):
                hours[row.host] += [h for h in range(2 * HOURS) if row.starts <= _hour(h) < row.ends]
        return hours

    def _path(self, name: str) -> str:
        return f"project:{self.pool}:lease:{name}"

    def _dates(self, hours: range) -> dict[str, Any]:
        return {"start": _hour(hours[0]).isoformat(), "end": _hour(hours[-1] + 1).isoformat()}

    def _begin(self, path: str, action: str, spec: dict[str, Any] | None) -> Admission:
        return self.database.run_transaction_blocking(
            partial(begin.begin_action, hooks=HOOKS, access=EVERYBODY, claim=claim(path, action, spec=spec))
        )

    def _done(self, admission: Admission) -> None:
        assert admission.grant, admission.refusal
        self._finish(admission.grant, [])

    def _finish(self, grant: Grant, moves: list[dict[str, str]]) -> None:
        told = {
            "epoch": grant.epoch,
            "run": grant.run,
            "path": grant.path,
            "result": ActionResult.SUCCEEDED,
            "at": NOON,
        }
        told["moves"] = moves
        self.database.run_transaction_blocking(
            partial(finish.finish_action, hooks=HOOKS, ending=ActionEnding.model_validate(told))
        )


def _hour(number: int) -> Any:
    return NOON + timedelta(hours=number)
