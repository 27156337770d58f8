"""Real processes: killed, crashing, ignoring SIGTERM, replaced under load, and taken over by the next supervisor."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from domain.errors import Rejected
from domain.model import ActionResult
from domain.services.definition import Node
from domain.services.ports import ServiceOrder
from domain.services.rollout import instance_revision
from providers.services.confinement import ProcessRules
from providers.services.ledger import BackendLedger, SupervisedInstance, create_tables
from providers.services.pids import TOKEN_VARIABLE
from providers.services.process import ProcessRunner
from providers.services.supervisor import Supervisor
from providers.sockets import find_free_port
from store.engine import Database
from tests.patience import PATIENCE, eventually
from tests.test_systems import supervising
from tests.test_systems.kit import Shop, growing, system

SERVER = str(Path(__file__).parents[2] / "examples" / "shop" / "server.py")
ANY_PROGRAM = ProcessRules(["/"])
SLEEP = {"command": ["sleep", "1000"], "stopSeconds": 2}


def web(port: int, version: str = "1", **more: Any) -> dict[str, Any]:
    told = {"NAME": "web", "VERSION": version}
    quick = {"http": "/health", "interval": 0.1}
    return {"command": [sys.executable, SERVER], "environment": told, "port": port, "health": quick, **more}


async def get(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        return await reader.read()
    finally:
        writer.close()


def runs(pid: int) -> bool:
    with suppress(OSError):
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return False


# Through the whole stack.


async def test_a_killed_process_makes_its_service_degraded_and_comes_back_by_itself(real: Shop) -> None:
    await real.deploy("/", system({"name": "job", **SLEEP, "instances": 2}))
    one, two = sorted(await real.units("/job"), key=lambda unit: unit.number)
    with real.holding_starts():
        os.kill(one.pid, signal.SIGKILL)
        await real.until_state("/", "degraded")
    await real.until_state("/", "stable")
    assert await real.way(real.at("/job")) == ["pending", "stable", "degraded", "stable"]
    after = {unit.number: unit.pid for unit in await real.units("/job")}
    assert after[two.number] == two.pid
    assert after[one.number] != one.pid
    assert runs(after[one.number])


async def test_a_service_that_never_gets_healthy_fails_at_its_deadline_and_is_rolled_back(real: Shop) -> None:
    port = find_free_port()
    await real.deploy("/", system({"name": "web", **web(port)}))
    (former,) = [unit for unit in await real.units("/web") if unit.number]
    deaf = {**SLEEP, "port": port, "health": {"http": "/health", "interval": 0.1, "timeout": 0.2}}
    for deadline in growing(1.5):
        outcome = await real.deploy("/web", deaf, deadline=deadline, rollback=True)
        if "could not be rolled back" not in outcome.message:  # within the same time
            break
        await real.deploy("/web", web(port))
    assert outcome.result is ActionResult.FAILED
    assert f"not stable within {deadline:g} s" in outcome.message
    assert outcome.message.endswith("rolled back to the former definition")
    assert b'"version": "1"' in await get(port)
    assert former.pid in {unit.pid for unit in await real.units("/web")}
    assert (await real.states()) == {"/": "stable", "/web": "stable"}


async def test_a_service_whose_port_somebody_else_has_is_not_stable_and_says_so_until_the_port_is_free(
    real: Shop,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = int(other.getsockname()[1])
        for deadline in growing(3):
            outcome = await real.deploy("/", system({"name": "web", **web(port)}), deadline=deadline)
            if "is taken" in outcome.message:  # else the server was not up before the deadline
                break
        assert outcome.result is ActionResult.FAILED
        assert f"port {port} is taken by another process" in outcome.message
    await real.until_state("/", "stable")
    assert b'"version": "1"' in await get(port)


async def test_an_update_drops_no_request(real: Shop) -> None:
    port = find_free_port()
    await real.deploy("/", system({"name": "web", **web(port, instances=2)}))
    answers: list[bytes] = []
    done = asyncio.Event()

    async def ask_on() -> None:
        while not done.is_set():
            answers.append(await get(port))

    client = [asyncio.create_task(ask_on()) for _ in range(3)]
    assert (await real.deploy("/web", web(port, "2", instances=2))).result is ActionResult.SUCCEEDED
    done.set()
    await asyncio.gather(*client)
    assert len(answers) > 20
    assert [answer for answer in answers if b"200 OK" not in answer] == []
    assert b'"version": "1"' in answers[0]
    assert b'"version": "2"' in await get(port)


async def test_nothing_of_a_service_is_left_after_a_teardown_but_its_logs(real: Shop, home: Path) -> None:
    port = find_free_port()
    await real.deploy("/", system({"name": "web", **web(port)}))
    pids = [unit.pid for unit in await real.units("/web")]
    assert all(map(runs, pids))
    await real.do("/", "teardown")
    assert not any(map(runs, pids))
    with pytest.raises(OSError, match="Connect call failed"):
        await get(port)
    folder = home / "services" / real.path.partition(":")[2]
    assert "web 1 listens" in (folder / "web" / "1.log").read_text()
    await real.do("/", "delete")
    assert not folder.exists()


# The supervisor by itself.


def make_supervisor(folder: Path, database: Database) -> Supervisor:
    return Supervisor(
        ProcessRunner(folder / "services", ANY_PROGRAM), BackendLedger("process", database), folder / "lock"
    )


@asynccontextmanager
async def keeping(folder: Path) -> AsyncIterator[Supervisor]:
    """A supervisor with its data in a folder. Leaving the block is, for its processes, the end of a worker."""
    database = Database(f"sqlite:///{folder / 'books.db'}")
    database.run_transaction_blocking(create_tables)
    supervisor = make_supervisor(folder, database)
    async with supervising.supervising(supervisor, database):
        yield supervisor


async def until(supervisor: Supervisor, wanted: int, generation: int) -> None:
    async with asyncio.timeout(PATIENCE):
        await supervising.until(supervisor, wanted, generation)


async def want(supervisor: Supervisor, generation: int, **definition: Any) -> list[SupervisedInstance]:
    """Order a service and wait until it is as it should be."""
    return await supervising.want(supervisor, generation, {**SLEEP, **definition})


async def test_the_next_supervisor_finds_the_same_processes(tmp_path: Path) -> None:
    async with keeping(tmp_path) as first:
        before = await want(first, 1, instances=3)
    assert all(runs(unit.pid) for unit in before)
    os.kill(before[0].pid, signal.SIGKILL)  # while nobody looks
    async with keeping(tmp_path) as second:
        await until(second, 1, 1)
        after = await second.ledger.list_instances()
        kept = {unit.pid for unit in before[1:]}
        assert kept < {unit.pid for unit in after}
        assert len(after) == 3
        await supervising.forget(second)
    assert not any(runs(unit.pid) for unit in [*before, *after])


async def test_two_supervisors_of_one_folder_take_turns(tmp_path: Path) -> None:
    async with keeping(tmp_path) as first:
        database = Database(f"sqlite:///{tmp_path / 'books.db'}")
        other = make_supervisor(tmp_path, database)
        waiting = asyncio.create_task(other.run(lambda _facts, _gone: asyncio.sleep(0)))
        await other.apply_orders([ServiceOrder("system:s:job", 1, SLEEP)])  # orders are taken by any of them
        await until(other, 1, 1)
        assert not other.is_supervising.is_set()
        assert len(await first.ledger.list_instances()) == 1
        await supervising.forget(first)
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
        database.close()


async def test_a_process_that_was_started_but_not_noted_is_found_by_its_token(tmp_path: Path) -> None:
    """The worker died between the start and the write: the stored state has the token and no PID."""
    database = Database(f"sqlite:///{tmp_path / 'books.db'}")
    database.run_transaction_blocking(create_tables)
    ledger = BackendLedger("process", database)
    unit = SupervisedInstance("tok3n", "system:s:job", 1, "", Node.model_validate(SLEEP))
    await ledger.record_service_orders([ServiceOrder("system:s:job", 1, SLEEP)])
    unit.revision = instance_revision(unit.node)
    await ledger.insert_instances([unit])
    lost = await asyncio.create_subprocess_exec("sleep", "1000", env={TOKEN_VARIABLE: "tok3n"}, start_new_session=True)
    database.close()
    async with keeping(tmp_path) as supervisor:
        await until(supervisor, 1, 1)
        (found,) = await supervisor.ledger.list_instances()
        await supervising.forget(supervisor)
    assert (found.token, found.pid) == ("tok3n", lost.pid)
    assert not runs(lost.pid)
    await lost.wait()


async def test_before_a_restart_the_record_forgets_the_former_process(tmp_path: Path) -> None:
    """Else a worker that dies right after the start leaves a process that its successor does not look for."""
    seen: list[list[int]] = []
    async with keeping(tmp_path) as supervisor:
        start = supervisor.runner.start_instance

        async def look_and_start(unit: SupervisedInstance) -> None:
            seen.append([record.pid for record in await supervisor.ledger.list_instances()])
            await start(unit)

        supervisor.runner.start_instance = look_and_start  # type: ignore[method-assign]
        (unit,) = await want(supervisor, 1)
        os.kill(unit.pid, signal.SIGKILL)
        async with asyncio.timeout(PATIENCE):
            while len(seen) < 2:
                await asyncio.sleep(0.02)
        await until(supervisor, 1, 1)
        await supervising.forget(supervisor)
    assert seen == [[0], [0]]


async def test_where_processes_cannot_be_known_no_system_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    with pytest.raises(Rejected, match="needs Linux"):
        await ProcessRunner(tmp_path, ANY_PROGRAM).prepare_system("system:shop", 1)
    assert not list(tmp_path.iterdir())


async def test_an_instance_that_has_ended_is_not_healthy_though_nobody_has_told_yet(tmp_path: Path) -> None:
    runner = ProcessRunner(tmp_path / "services", ANY_PROGRAM)
    await runner.prepare_system("system:s", 1)
    unit = SupervisedInstance("t", "system:s:job", 1, "", Node(command=["true"]))
    await runner.start_instance(unit)
    await runner.wait_for_exit(unit)
    assert await runner.probe_instance(unit) == "it has ended"
    await runner.stop_instance(unit)


async def test_an_instance_is_asked_to_end_and_made_to_if_it_will_not(tmp_path: Path) -> None:
    polite = "trap 'echo asked > asked; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    stubborn = "trap '' TERM; echo up; while :; do sleep 0.05; done"
    async with keeping(tmp_path) as supervisor:
        for name, script, seconds in (("polite", polite, PATIENCE), ("stubborn", stubborn, 0.5)):
            order = {"command": ["sh", "-c", script], "stopSeconds": seconds}
            await supervisor.apply_orders([ServiceOrder(f"system:s:{name}", 1, order)])
        await until(supervisor, 2, 1)
        for name in ("polite", "stubborn"):  # it counts as healthy when it has run for a while: is the trap set?
            log = tmp_path / "services" / "s" / name / "1.log"
            assert eventually(log.read_text) == "up\n"
        pids = [unit.pid for unit in await supervisor.ledger.list_instances()]
        await supervising.forget(supervisor)
    assert (tmp_path / "services" / "s" / "polite" / ".home" / "asked").read_text() == "asked\n"
    assert not any(map(runs, pids))


async def test_an_instance_gets_a_bounded_environment_no_shell_and_its_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_WORKER", "hunter2")
    limits = "resource.getrlimit(resource.RLIMIT_NOFILE)"
    tell = f"print(sorted(os.environ), sys.argv[1:], {limits}, flush=True); time.sleep(1000)"
    words = [sys.executable, "-c", f"import os, resource, sys, time; time.sleep(0.3); {tell}", "$HOME; echo x"]
    async with keeping(tmp_path) as supervisor:
        order = {"command": words, "environment": {"MINE": "1"}, "resources": {"files": 64}, "stopSeconds": 1}
        await supervisor.apply_orders([ServiceOrder("system:s:job", 1, order)])
        log = tmp_path / "services" / "s" / "job" / "1.log"
        async with asyncio.timeout(PATIENCE):
            while not log.exists() or "(64, 64)" not in log.read_text():
                await asyncio.sleep(0.05)
        told = log.read_text()
        await supervising.forget(supervisor)
    assert "hunter2" not in told
    names = ["HOME", "LANG", "LC_CTYPE", "MINE", "PATH", "RATCHET_INSTANCE", "RATCHET_SERVICE"]
    assert told.startswith(str([name for name in names if name in told]))
    assert "SECRET" not in told
    assert "['$HOME; echo x']" in told


async def test_crashes_are_told_and_answered_with_ever_longer_pauses(tmp_path: Path) -> None:
    async with keeping(tmp_path) as supervisor:
        await supervisor.apply_orders([ServiceOrder("system:s:job", 1, {"command": ["sh", "-c", "exit 3"]})])
        listener = supervisor.subscribe_to_changes("system:s")
        async with asyncio.timeout(PATIENCE):
            while not (facts := await supervisor.describe_services("system:s")) or not facts[0].is_failing():
                await listener.wait_for_change()
        assert "ended with exit code 3" in facts[0].message
        await want(supervisor, 2)  # a better definition is taken at once, whatever the pause
        await supervising.forget(supervisor)


@pytest.mark.parametrize(
    ("health", "well"),
    [
        ({"tcp": True}, True),
        ({"http": "/health"}, True),
        ({"http": "/"}, True),
        ({"command": ["true"]}, True),
        ({"command": ["false"]}, False),
        ({"command": ["no-such-program"]}, False),
        ({"command": ["sleep", "10"], "timeout": 0.1}, False),
    ],
)
async def test_health_is_checked_by_tcp_http_and_command(tmp_path: Path, health: dict[str, Any], well: bool) -> None:
    runner = ProcessRunner(tmp_path, ANY_PROGRAM)
    unit = SupervisedInstance(
        "t", "system:s:web", 1, "", Node.model_validate({**web(find_free_port()), "health": health})
    )
    async with asyncio.timeout(PATIENCE):
        assert bool(await supervising.probe(runner, unit, well)) is not well
