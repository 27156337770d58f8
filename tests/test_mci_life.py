"""Random lives of an MCI, with faults, outside changes and restarts, compared with a model.

After every step: no VM orphaned, no record lost, no status outside the table, nothing left under way, caps held.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from client.actions import ActionClient
from client.connection import connect_temporal
from domain.errors import Refused
from domain.faults import Fault
from domain.limits import CAPS_BY_CLOUD
from domain.mci.messages import CONTINUE, WITHDRAW, HoldDecision, SurveyRequest
from domain.mci.tables import MCI, VM
from domain.model import ActionResult
from domain.ports import SHARED_RESOURCE_TYPES, VmState
from providers.simulated.tables import vms
from starter.mci import requests
from tests.orphans import listed
from tests.patience import PATIENCE
from tests.user import User
from workers import embedded
from workers.plugin import temporal_plugin
from workers.service import WorkerService
from workers.settings import WorkerSettings

T = TypeVar("T")

# Fault kinds by verb: what may happen to any VM, once.
TROUBLE = st.sampled_from(
    [
        ("create", "fail"),
        ("create", "lose-answer"),
        ("create", "throttle"),
        ("create", "unavailable"),
        ("suspend", "fail"),
        ("suspend", "lose-answer"),
        ("resume", "fail"),
        ("reboot", "lose-answer"),
        ("terminate", "fail"),
        ("terminate", "lose-answer"),
        ("terminate", "lie"),
        ("describe", "unknown-status"),
    ]
)
PLACE_TROUBLE = st.sampled_from([("prepare", "fail"), ("prepare", "lose-answer"), ("release", "fail")])
CONTROL = st.sampled_from(["suspend", "resume", "reboot", "terminate", "refine", "delete"])
POLICY = st.sampled_from(["continue", "rollback", "refine"])


class Stack:
    """A stack in a thread of its own: the state machine is not asynchronous."""

    def __init__(self, home: Path) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self.names = count(1)
        self.user = self.run(self._start(home))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE)

    async def _start(self, home: Path) -> User:
        self._server = await embedded.start_server(home)
        client = await connect_temporal(home, temporal_plugin())
        told = WorkerSettings(
            home=home, simulated_latency=0, simulated_jitter=0, call_timeout=PATIENCE, patience=PATIENCE
        )
        self.service = WorkerService(client, told)
        self.service.prepare_databases()
        await self.serve()
        return User(ActionClient(client), self.service, "t1")

    async def serve(self) -> None:
        """A worker process begins to work."""
        self._stop = asyncio.Event()
        ready = asyncio.Event()

        async def working() -> None:
            async with self.service.serve_queues():
                ready.set()
                await self._stop.wait()

        self._working = asyncio.create_task(working())
        await ready.wait()

    async def restart(self) -> None:
        """The worker leaves in the middle of whatever it does, and another one takes over. (Kills: test_crashes.)"""
        self._stop.set()
        await self._working
        await self.serve()

    async def stop(self) -> None:
        self._stop.set()
        await self._working
        await self.service.close()
        await self._server.stop_server()
        await asyncio.sleep(0.2)


@pytest.fixture(scope="module")
def stack_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    found = Stack(tmp_path_factory.mktemp("life"))
    yield found
    found.run(found.stop())
    found.loop.call_soon_threadsafe(found.loop.stop)


class Life(RuleBasedStateMachine):
    """One MCI in one region of two clouds. What the model remembers: whether it exists, and its highest numbers."""

    def __init__(self, stack: Stack) -> None:
        super().__init__()
        self.stack, self.user = stack, stack.user
        self.name = f"m{next(stack.names)}"
        self.region = f"r{next(stack.names)}"
        self.path = self.user.mci(self.name)
        self.exists = False
        self.told = ""  # the message of the last outcome
        self.highest: dict[str, int] = {}
        self.lied_about: set[str] = set()  # VMs that their cloud may call terminated while they live

    def teardown(self) -> None:
        self.stack.run(self.stack.service.simulated["aws"].clear_faults())
        if self.exists:
            outcome = self.do("delete")
            assert outcome is ActionResult.SUCCEEDED, outcome
        assert self.stack.run(self.alive()) == {}
        assert self.shared() == set()

    def spec(self, policy: str, hold: bool) -> dict[str, Any]:
        groups = [
            {"name": csp, "subGroupSize": size, "csp": csp, "region": self.region}
            for csp, size in (("ncp", 3), ("aws", 1))
        ]
        return {"subGroups": groups, "policyOnPartialFailure": policy, "option": "hold" if hold else ""}

    def do(self, action: str, during: Callable[[], None] | None = None, **more: Any) -> ActionResult | None:
        """Ask for an action and wait for its end; None if it was refused, which must change nothing."""
        before = self.stack.run(self.seen())
        ticket = self.stack.run(self.user.ask(self.path, action, **more))
        if ticket.admission.refusal:
            assert self.stack.run(self.seen()) == before
            return None
        if during:
            during()
        outcome = self.stack.run(self.user.asking.wait_for_outcome(self.path, ticket.run))
        self.exists = outcome.status != "None"
        self.told = outcome.message
        return outcome.result

    async def seen(self) -> dict[str, str]:
        try:
            view = await self.user.see(self.path)
        except Refused:
            return {}
        return {view.path: view.phase, **{vm.path: vm.status for vm in view.members}}

    async def alive(self) -> dict[str, VmState]:
        """What the clouds say lives, by our path. Two of one name would show as a difference in number."""
        books = await self.user.books()
        mine = {path: found for path, found in books.items() if path.startswith(f"{self.path}:")}
        living = {path: [vm for vm in found if vm.state != VmState.TERMINATED] for path, found in mine.items()}
        assert all(len(found) <= 1 for found in living.values()), living
        return {path: VmState(found[0].state) for path, found in living.items() if found}

    def shared(self) -> set[str]:
        clouds = (self.stack.service.simulated[csp] for csp in ("ncp", "aws"))
        found = [each for cloud in clouds for each in self.stack.run(cloud.list_shared_resources())]
        return {what for region, what, _ in found if region == self.region}

    @precondition(lambda self: not self.exists)
    @rule(policy=POLICY, hold=st.sampled_from(["", CONTINUE, WITHDRAW]), restart=st.booleans())
    def create(self, policy: str, hold: str, restart: bool) -> None:
        def decide() -> None:
            if restart:
                self.stack.run(self.stack.restart())
            if hold:
                self.stack.run(self.decided(hold))

        self.do("create", decide, spec=self.spec(policy, bool(hold)))
        self.highest = {"ncp": 3, "aws": 1}

    async def decided(self, word: str) -> None:
        """Say the word as soon as the MCI holds; it may fail before."""
        async with asyncio.timeout(PATIENCE):
            while (await self.seen()).get(self.path) == "Preparing":
                await asyncio.sleep(0.01)
        with suppress(Refused):  # the preparation failed, and nothing holds
            await requests.send_decision(self.user.asking, self.path, word, HoldDecision())

    @rule(action=CONTROL, force=st.booleans(), restart=st.booleans())
    def control(self, action: str, force: bool, restart: bool) -> None:
        if action == "delete" and force:
            return  # it leaves VMs behind, and says so
        during = (lambda: self.stack.run(self.stack.restart())) if restart else None
        self.do(action, during, force=force)

    @precondition(lambda self: self.exists)
    @rule(action=CONTROL, number=st.integers(1, 5))
    def control_one(self, action: str, number: int) -> None:
        vm = f"{self.path}:vm:ncp-{number}"
        if action in ("refine", "delete") or vm not in self.stack.run(self.seen()):
            return
        ticket = self.stack.run(self.user.ask(vm, action))
        if not ticket.admission.refusal:
            self.stack.run(self.user.asking.wait_for_outcome(vm, ticket.run))

    @precondition(lambda self: self.exists)
    @rule(number=st.integers(1, 2))
    def grow(self, number: int) -> None:
        before = set(self.stack.run(self.seen()))
        result = self.do("scale-out", spec={"subGroup": "ncp", "count": number})
        names = {path.rsplit("-", 1)[1] for path in set(self.stack.run(self.seen())) - before if ":vm:ncp-" in path}
        if result is None:
            return
        if result is ActionResult.FAILED and not names:
            assert self.told.startswith("the preparation failed"), self.told
            return
        assert names == {str(self.highest["ncp"] + n) for n in range(1, number + 1)}, (
            "numbers go on, and never come back"
        )
        self.highest["ncp"] += number

    @precondition(lambda self: self.exists)
    @rule(number=st.integers(1, 2))
    def shrink(self, number: int) -> None:
        before = self.stack.run(self.seen())
        if self.do("scale-in", spec={"subGroup": "ncp", "count": number}) is ActionResult.SUCCEEDED:
            indexes = sorted(int(path.rsplit("-", 1)[1]) for path in before if ":vm:ncp-" in path)
            left = sorted(int(path.rsplit("-", 1)[1]) for path in self.stack.run(self.seen()) if ":vm:ncp-" in path)
            assert left == indexes[:-number]

    @precondition(lambda self: self.exists)
    @rule(reconcile=st.booleans())
    def survey(self, reconcile: bool) -> None:
        self.stack.run(self.stack.service.simulated["aws"].clear_faults())
        report = self.stack.run(
            requests.run_survey(self.user.asking, SurveyRequest(path=self.path, reconcile=reconcile))
        )
        assert report.orphans_found == len(self.living_though_terminated())
        assert report.stale == 0
        if reconcile:
            self.agree(exactly=True)

    @precondition(lambda self: self.exists)
    @rule(state=st.sampled_from(["stopped", "running", "terminated"]), number=st.integers(1, 3))
    def meddle(self, state: str, number: int) -> None:
        """Somebody changes a VM behind our back; the next read of its status finds out."""
        mine = sa.update(vms).where(
            vms.c.path == f"{self.path}:vm:ncp-{number}", vms.c.state != VmState.TERMINATED.value
        )
        work = self.stack.service.cloud_database.run_transaction(
            lambda connection: connection.execute(mine.values(state=state)).rowcount
        )
        if self.stack.run(work):
            self.stack.run(self.stack.service.simulated["aws"].clear_faults())  # or the cloud may say what nobody knows
            self.stack.run(requests.run_survey(self.user.asking, SurveyRequest(path=self.path, reconcile=True)))

    @rule(trouble=TROUBLE, vm=st.sampled_from(["ncp-1", "ncp-2", "aws-1", "ncp-4"]), times=st.integers(1, 2))
    def trouble(self, trouble: tuple[str, str], vm: str, times: int) -> None:
        verb, kind = trouble
        self.stack.run(self.user.fault(kind, vm=vm, verb=verb, times=times))
        if kind == "lie":
            self.lied_about.add(f"{self.path}:vm:{vm}")

    @rule(trouble=PLACE_TROUBLE, what=st.sampled_from(SHARED_RESOURCE_TYPES))
    def place_trouble(self, trouble: tuple[str, str], what: str) -> None:
        verb, kind = trouble
        fault = Fault(kind=kind, verb=verb, region=self.region, vm=what, times=1)
        self.stack.run(self.stack.service.simulated["aws"].add_fault(fault))

    @invariant()
    def nothing_is_left_under_way_or_locked(self) -> None:
        for path, status in self.stack.run(self.seen()).items():
            table = MCI if path == self.path else VM
            assert status in table.statuses, (path, status)
            assert status not in table.transitional_statuses, (path, status)
        assert self.stack.run(self.stack.service.inventory.list_locks(self.path)) == []
        assert self.stack.service.context.permits.slots_in_use() == {}

    @invariant()
    def no_vm_is_orphaned_and_no_record_lost(self) -> None:
        self.agree(exactly=False)

    def agree(self, exactly: bool) -> None:
        """Whatever lives in a cloud has a record; a record that says Running or Suspended speaks the truth."""
        records = {path: status for path, status in self.stack.run(self.seen()).items() if path != self.path}
        alive = self.stack.run(self.alive())
        assert alive.keys() <= records.keys(), f"orphans: {alive.keys() - records.keys()}"
        words = {VmState.RUNNING: "Running", VmState.STOPPED: "Suspended"}
        for path, status in records.items():
            truth = words[alive[path]] if path in alive else ""
            if status in ("Running", "Suspended"):
                assert truth == status, f"{path} is {status}, the cloud says {truth or 'nothing'}"
            if exactly and status in ("Failed", "Undefined"):
                assert not truth, f"{path} is {status}, but lives"
        if lost := self.living_though_terminated():
            assert lost <= self.lied_about, f"Terminated, but live: {lost - self.lied_about}"
            assert {orphan.path for orphan in self.stack.run(listed(self.user.asking, self.path))} == lost

    def living_though_terminated(self) -> set[str]:
        """VMs that live although their records are Terminated."""
        return {path for path in self.stack.run(self.alive()) if self.stack.run(self.seen())[path] == "Terminated"}

    @invariant()
    def what_is_shared_is_there_exactly_while_it_is_needed(self) -> None:
        if self.stack.run(self.alive()):
            assert self.shared() == set(SHARED_RESOURCE_TYPES)

    @invariant()
    def caps_are_held(self) -> None:
        for csp in ("ncp", "aws"):
            peaks = self.stack.service.simulated[csp].peak_concurrency()
            assert peaks.regions <= CAPS_BY_CLOUD[csp].regions
            assert max(peaks.vms.values(), default=0) <= CAPS_BY_CLOUD[csp].vms
            assert max(peaks.shared.values(), default=0) <= 1


@pytest.mark.timeout(5 * PATIENCE)
def test_random_lives_leave_no_orphan_no_ghost_and_nothing_under_way(stack_of_its_own: Stack) -> None:
    class Here(Life):
        def __init__(self) -> None:
            super().__init__(stack_of_its_own)

    bounded = settings(
        max_examples=12,
        stateful_step_count=15,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
        phases=(Phase.generate,),  # a life takes a second: the one that went wrong is told as it was
    )
    run_state_machine_as_test(Here, settings=bounded)
