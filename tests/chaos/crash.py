"""A worker that dies or freezes at a named point, for tests that hit a worker at every step.

The points are where something has just become true, or is just about to: the start and the end of every activity, each
heartbeat, each transaction just before and just after its commit, and the start and the end of work done at once.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import sqlalchemy as sa
from temporalio import activity
from temporalio.client import Client
from temporalio.worker import (
    ActivityInboundInterceptor,
    ActivityOutboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
)

from domain.model import Grant, WorkReport
from domain.ports import WorkAtBegin
from store.engine import Database
from workers.service import WorkerService
from workers.settings import WorkerSettings

T = TypeVar("T")
Reach = Callable[[str], None]
TRACE = "trace"
STOP = "!stop"  # behind a point: the process is frozen there, as by SIGSTOP
TELL = "!tell"  # behind a point: a file is written beside this one, and the process goes on


class CrashPoints:
    """Ends the process, as by kill -9, at the point that the file names, such as `landings.land:after-commit`.

    Several lines are reached one after the other, and the last one kills: so what many actions pass can be met in one.
    While the file says only `trace`, the points that are reached are written beside it.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._turn = Lock()  # transactions have threads of their own

    def reach(self, point: str) -> None:
        with self._turn:
            armed = self._file.read_text().splitlines() if self._file.exists() else []
            if armed == [TRACE]:
                with self._file.with_suffix(".trace").open("a") as told:
                    told.write(f"{point}\n")
            if armed and armed[0] in (point, point + STOP, point + TELL):
                self._file.write_text("\n".join(armed[1:]))  # once: whoever comes after us shall live
                if len(armed) == 1:
                    self._strike(armed[0])

    def _strike(self, armed: str) -> None:
        if armed.endswith(TELL):
            self._file.with_suffix(".reached").touch()
        else:
            os.kill(os.getpid(), signal.SIGSTOP if armed.endswith(STOP) else signal.SIGKILL)

    def watch(self, database: Database) -> None:
        """Adds a point just before and just after the commit of each transaction."""
        run_here = database.run_transaction_blocking

        def watched(work: Callable[[sa.Connection], T]) -> T:
            plain = work.func if isinstance(work, partial) else work
            name = f"{plain.__module__.rsplit('.', 1)[-1]}.{plain.__name__}"

            def to_its_commit(connection: sa.Connection) -> T:
                result = work(connection)
                self.reach(f"{name}:before-commit")
                return result

            result = run_here(to_its_commit)
            self.reach(f"{name}:after-commit")
            return result

        setattr(database, "run_transaction_blocking", watched)  # noqa: B010  a method, as far as mypy knows

    def at_once(self, works: Mapping[tuple[str, str], WorkAtBegin]) -> dict[tuple[str, str], WorkAtBegin]:
        """Adds points at the start and the end of work in the activity of begin."""
        return {which: self._told(at_once_name(*which), work) for which, work in works.items()}

    def _told(self, name: str, work: WorkAtBegin) -> WorkAtBegin:
        async def told(grant: Grant) -> WorkReport | Grant:
            self.reach(f"{name}:start")
            done = await work(grant)
            self.reach(f"{name}:end")
            return done

        return told


def at_once_name(kind: str, action: str) -> str:
    """The prefix of the points of such work."""
    return f"at_once {kind} {action}"


class CrashingService(WorkerService):
    """A worker with crash points, which the file CRASH_FILE arms."""

    def __init__(self, client: Client, settings: WorkerSettings) -> None:
        points = CrashPoints(Path(os.environ["CRASH_FILE"]))
        super().__init__(client, settings, interceptors=[Crashing(points)])
        self.work_at_begin = points.at_once(self.work_at_begin)
        points.watch(self.database)
        points.watch(self.cloud_database)


class Crashing(Interceptor):
    """Adds points at the start, the heartbeats and the end of every activity."""

    def __init__(self, points: CrashPoints) -> None:
        self._points = points

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Activity(next, self._points.reach)


class _Activity(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, reach: Reach) -> None:
        super().__init__(next)
        self._reach = reach

    def init(self, outbound: ActivityOutboundInterceptor) -> None:
        super().init(_Heartbeats(outbound, self._reach))

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        name = activity.info().activity_type
        self._reach(f"{name}:start")
        result = await super().execute_activity(input)
        self._reach(f"{name}:end")
        return result


class _Heartbeats(ActivityOutboundInterceptor):
    def __init__(self, next: ActivityOutboundInterceptor, reach: Reach) -> None:
        super().__init__(next)
        self._reach = reach

    def heartbeat(self, *details: Any) -> None:
        super().heartbeat(*details)
        self._reach(f"{activity.info().activity_type}:heartbeat")
