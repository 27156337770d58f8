"""Attacks on the machine by a service: other programs, others' files, the worker's secrets, more than its share."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from domain.connections import Connections
from domain.errors import Rejected
from domain.services.definition import Node
from domain.systems.ports import backend_queue
from providers.services import confinement
from providers.services.confinement import ProcessRules, assign_uid
from providers.services.ledger import SupervisedInstance
from providers.services.process import ProcessRunner
from providers.sockets import find_free_port
from tests.patience import PATIENCE, eventually
from tests.test_systems.kit import Shop, growing, system
from workers.settings import WorkerSettings
from workers.systems import SystemFamily

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give services users of their own")
SHELL = ProcessRules(["/bin/sh", "/bin/sleep", "/usr/bin/sleep"])


def instance(script: str, **more: Any) -> SupervisedInstance:
    node = {"command": ["sh", "-c", f"{script}; echo end; exec sleep 1000"], "stopSeconds": 1, **more}
    return SupervisedInstance(os.urandom(8).hex(), "system:s:job", 1, "", Node.model_validate(node))


async def output(runner: ProcessRunner, unit: SupervisedInstance) -> str:
    """What the instance printed until it said `end`."""
    await runner.start_instance(unit)
    log = runner.log_folder_of_service(unit.path) / "1.log"
    try:
        async with asyncio.timeout(PATIENCE):
            while "end\n" not in (text := log.read_text()):
                await asyncio.sleep(0.01)
        return text
    finally:
        await runner.stop_instance(unit)


def words_of(process: Path) -> str:
    with suppress(OSError):
        return (process / "cmdline").read_text()
    return ""


def open_folder(folder: Path) -> Path:
    """Let other users pass: pytest closes its folders to them."""
    for each in folder.parents:
        if str(each).startswith("/tmp/"):
            each.chmod(0o711)
    return folder


def test_processes_are_switched_on_by_name_only() -> None:
    assert SystemFamily.served_queues(WorkerSettings(home=Path("x")), Connections()) == [backend_queue("simulated")]
    on = WorkerSettings.model_validate({"home": "x", "backends": "simulated, process"})
    assert backend_queue("process") in SystemFamily.served_queues(on, Connections())


@pytest.mark.parametrize(
    ("programs", "command", "allowed"),
    [
        ([], ["sh"], False),
        (["/bin/sh"], ["sh"], True),
        (["/bin/sh"], ["/bin/sh"], True),
        (["/bin/sh"], ["sleep"], False),
        (["/opt/"], ["/opt/../bin/sh"], False),
        (["/usr/bi"], ["/usr/bin/env"], False),
        (["/usr/bin/"], ["/usr/bin/env"], True),
    ],
)
def test_only_listed_programs_run(programs: list[str], command: list[str], allowed: bool) -> None:
    rules, node = ProcessRules(programs), Node(command=command)
    if allowed:
        assert rules.find_program(command, node).endswith(command[0].rpartition("/")[2])
    else:
        with pytest.raises(Rejected, match="may not run here: RATCHET_PROGRAMS"):
            rules.find_program(command, node)


def test_a_link_is_the_program_that_it_points_to(tmp_path: Path) -> None:
    (tmp_path / "mine").symlink_to("/bin/sh")
    with pytest.raises(Rejected, match="may not run"):
        ProcessRules([f"{tmp_path}/"]).find_program([f"{tmp_path}/mine"], Node(command=["x"]))


async def test_a_health_check_is_no_way_around_the_list(tmp_path: Path) -> None:
    runner, proof = ProcessRunner(tmp_path, SHELL), tmp_path / "proof"
    unit = instance("true", health={"command": ["touch", str(proof)]})
    await runner.start_instance(unit)
    try:
        assert "may not run here" in await runner.probe_instance(unit)
    finally:
        await runner.stop_instance(unit)
    assert not proof.exists()


async def test_a_service_cannot_gain_rights_and_has_no_variable_of_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RATCHET_STORE_URL", "postgresql://ratchet:hunter2@db/ratchet")
    text = await output(ProcessRunner(tmp_path, ProcessRules(["/"])), instance("cat /proc/self/status; env; ulimit -c"))
    assert "NoNewPrivs:\t1" in text
    assert "hunter2" not in text
    assert str(Path(sys.executable).parent) not in text, "the worker's PATH"


async def test_a_variable_of_a_definition_does_not_reach_the_launcher(tmp_path: Path) -> None:
    """LD_PRELOAD would run its library as root, before the service gives up its rights."""
    unit = instance("true", environment={"LD_PRELOAD": str(tmp_path / "evil.so")})
    runner = ProcessRunner(tmp_path, SHELL)
    text = await output(runner, unit)
    assert text.partition("end")[0].count("evil.so") == 1, "the loader of sh complains, that of the launcher does not"


@AS_ROOT
async def test_each_service_has_a_user_of_its_own_who_cannot_read_the_data_folder(tmp_path: Path) -> None:
    home = open_folder(tmp_path / "home")
    home.mkdir(mode=0o700)
    (home / "inventory.db").write_text("secret")
    rules = ProcessRules(["/"], own_users=True)
    script = "id -u; id -G; touch mine && ls -l mine; cat ../../../../inventory.db; ls ../../../.."
    text = await output(ProcessRunner(home / "services", rules), instance(script))
    uid = assign_uid(home.resolve() / "services", "system:s:job")
    assert text.splitlines()[:2] == [str(uid), str(uid)]
    assert "mine" in text
    assert "secret" not in text
    assert text.count("Permission denied") == 2
    assert assign_uid(home.resolve() / "services", "system:s:other") == uid + 1
    assert assign_uid(home.resolve() / "services", "system:s:job") == uid, "the same at every start"
    assert (home / "services").stat().st_mode & 0o066 == 0


@AS_ROOT
async def test_a_service_cannot_make_root_write_where_it_wants(tmp_path: Path) -> None:
    """The log is outside of what the service may change, so that it cannot become a link to another file."""
    home = open_folder(tmp_path / "home")
    rules = ProcessRules(["/"], own_users=True)
    text = await output(ProcessRunner(home / "services", rules), instance("ln -sf /etc/passwd ../1.log; rm ../1.log"))
    assert text.count("Permission denied") == 2


async def test_limits_hold_from_the_first_instruction(tmp_path: Path) -> None:
    limits = {"memory": 512, "files": 32, "processes": 5_000}
    text = await output(
        ProcessRunner(tmp_path, ProcessRules(["/"])), instance("cat /proc/self/limits", resources=limits)
    )
    lines = {line[:25].strip(): line[25:].split()[:2] for line in text.splitlines()}
    assert lines["Max address space"] == [str(512 << 20)] * 2
    assert lines["Max open files"] == ["32", "32"]
    assert lines["Max processes"] == ["5000", "5000"]
    assert lines["Max core file size"] == ["0", "0"]


async def test_a_fork_bomb_stays_in_its_cgroup_and_ends_with_its_instance(tmp_path: Path) -> None:
    if not confinement.make_cgroups("try", Node(command=["x"]).resources):
        pytest.skip("no cgroup can be made here")
    confinement.end_cgroups("try")
    script = "(i=0; while [ $i -lt 60 ]; do setsid sleep 777.77 & i=$((i+1)); done) 2>/dev/null"
    unit = instance(script, resources={"processes": 20})
    await output(ProcessRunner(tmp_path, SHELL), unit)

    def bombs() -> list[str]:
        return [words for folder in Path("/proc").iterdir() if "777.77" in (words := words_of(folder))]

    left = eventually(bombs, lambda left: not left)  # what was killed takes its time to end
    assert left == [], "they left the process group, and not the cgroup"


async def test_a_secret_is_resolved_at_the_start_and_is_in_no_definition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = tmp_path / "secrets"
    (secrets / "s").mkdir(parents=True)
    (secrets / "s" / "db").touch(0o600)
    (secrets / "s" / "db").write_text("from-the-file\n")
    monkeypatch.setenv("RATCHET_SECRET_API", "from-the-environment")
    sources = {"DB": {"file": "db"}, "API": {"env": "API"}}
    unit = instance('echo "[$DB] [$API]"', secretFrom=sources)
    runner = ProcessRunner(tmp_path, ProcessRules(["/"], secrets=secrets))
    text = await output(runner, unit)
    (shown,) = await runner.read_logs(unit.path, 10)
    assert shown.lines[0] == "[***] [***]", "what a service prints is shown without its secrets"
    assert "[from-the-file] [from-the-environment]" in text
    assert "from-the-" not in unit.node.model_dump_json()


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ({"file": "open"}, "chmod 600"),
        ({"file": "link"}, "cannot be read"),
        ({"file": "missing"}, "cannot be read"),
        ({"file": "of-another"}, "cannot be read"),
        ({"env": "STORE_URL"}, "the worker has no variable RATCHET_SECRET_STORE_URL"),
    ],
)
async def test_a_secret_that_is_not_the_systems_own_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: dict[str, str], reason: str
) -> None:
    monkeypatch.setenv("RATCHET_STORE_URL", "hunter2")
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "open").touch(0o600)
    (tmp_path / "s" / "open").chmod(0o644)
    (tmp_path / "s" / "link").symlink_to("/etc/passwd")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "of-another").touch(0o600)
    runner = ProcessRunner(tmp_path / "services", ProcessRules(["/"], secrets=tmp_path))
    with pytest.raises(Rejected, match=reason) as error:
        await runner.start_instance(instance("true", secretFrom={"X": source}))
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize("file", ["../other/of-another", "/etc/passwd", ".."])
def test_a_secret_has_a_plain_name(file: str) -> None:
    with pytest.raises(ValueError, match="secretFrom"):
        Node.model_validate({"command": ["x"], "secretFrom": {"X": {"file": file}}})


async def test_a_first_line_without_end_is_an_unhealthy_service_that_can_be_stopped(real: Shop) -> None:
    """The line overruns the reader's buffer: that must not end the task that watches the instance."""
    port = find_free_port()
    endless = (
        "import os, socket; s = socket.create_server(('127.0.0.1', int(os.environ['PORT'])))\n"
        "while True:\n c = s.accept()[0]\n try: c.sendall(b'x' * 300_000)\n except OSError: pass\n c.close()"
    )
    quick = {"http": "/", "interval": 0.05, "timeout": 2}
    job = {"name": "job", "command": [sys.executable, "-c", endless], "port": port, "health": quick, "stopSeconds": 1}
    for deadline in growing(2):
        outcome = await real.deploy("/", system(job), deadline=deadline)
        if "first line" in outcome.message:  # else it was not up before the deadline
            break
    assert outcome.result == "failed"
    assert "its first line does not end" in outcome.message
    assert (await real.do("/", "teardown")).result == "succeeded"
