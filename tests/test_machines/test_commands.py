"""The family's own commands, as a user types them."""

from __future__ import annotations

import asyncio
import json

from domain.paths import name_of
from tests.test_cli.conftest import cli as cli
from tests.test_cli.shell import Cli
from tests.test_machines.site import MachineSite


async def test_the_life_of_a_machine_in_words(site: MachineSite, cli: Cli) -> None:
    name = site.name
    for words in (
        f"account create {name} --retention-days 1",
        f"cloudspace create {name}/dev",
        f"image create {name}",
        f"node create {name}-1 --memory 8",
        f"machine create {name}/dev/db --image {name} --node {name}-1 --memory 2",
        f"machine add-disk {name}/dev/db --disk d1 --size 5",
        f"machine stop {name}/dev/db",
        f"disk detach {name}/d1",
        f"disk attach {name}/d1 --machine dev/db",
        f"machine delete {name}/dev/db --retention-days 3",
        f"machine restore {name}/dev/db",
    ):
        ran = await cli(words)
        assert ran.code == 0, (words, ran.err)
    shown = json.loads((await cli(f"machine status {name}/dev/db -o json")).out)
    assert (shown["status"], bool(shown["info"]["node"])) == ("HALTED", True)  # at home where there is most room
    refused = await cli(f"machine pause {name}/dev/db")
    assert refused.code == 3
    assert "pause is not allowed for machine under HALTED" in refused.err
    assert "allowed now: start" in refused.err
    assert (await cli(f"machine attach-disk {name}/dev/db --disk nope")).code == 6
    assert (await cli(f"cloudspace delete {name}/dev")).code == 3
    assert (await cli(f"cloudspace delete {name}/dev --cascade")).code == 0


async def test_what_is_not_said_of_a_new_object_is_kept_as_it_is_usual(site: MachineSite, cli: Cli) -> None:
    await site.with_space()
    await site.with_image()
    node, machine = site.node(1), site.machine()
    assert (await cli(f"node create {node}")).code == 0
    assert json.loads((await cli(f"get {node} -o json")).out)["spec"]["memory"] == 64
    made = await cli(f"machine create {machine} --image {site.name} --node {name_of(node)} --memory 64")
    assert made.code == 0, made.err  # the node itself has as much
    assert (await cli(f"machine status {machine}")).out.splitlines()[1].split()[3] == f"{name_of(node)}@simulated"
    disk = f"{site.account}:disk:d1"
    assert (await cli(f"disk create {disk}")).code == 0
    assert json.loads((await cli(f"get {disk} -o json")).out)["spec"]["size"] == 10


async def test_queues_are_listed_shown_stopped_and_terminated(site: MachineSite, cli: Cli) -> None:
    await site.with_machine("db", "web", nodes=2)
    db, web = site.machine(), site.machine("web")
    await site.hang(db, "migrate")
    await site.admitted(db, "migrate", node=f"{site.name}-2")
    await site.hanging(db)
    stop = await site.admitted(db, "stop")
    await site.hang(web, "reboot")
    reboot = await site.admitted(web, "reboot")
    shown = (await cli(f"queue show {db}")).out.splitlines()
    assert [line.split()[1:3] for line in shown[1:]] == [["runs", "migrate"], ["waits", "stop"]]
    listed = json.loads((await cli("queue list -o json")).out)
    mine = [(lock["path"], lock["place"], lock["action"]) for lock in listed if site.name in lock["path"]]
    assert mine == [(db, 1, "migrate"), (db, 2, "stop"), (web, 1, "reboot")]
    await site.release()
    stopped, terminated = await asyncio.gather(cli(f"queue stop {db}"), cli(f"queue terminate --prefix {site.account}"))
    assert (stopped.code, terminated.code) == (0, 0)
    assert [(await site.outcome(ticket)).status for ticket in (stop, reboot)] == ["HALTED", "RUNNING"]
    assert "no action runs or waits" in (await cli(f"queue show {db}")).err
    await site.at_rest()
