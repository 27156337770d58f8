"""Upgrades with real processes: CRMv1 starts CRMv2, CRMv2 ends CRMv1; and every failure on the way."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from domain.edge.faults import CrmFault
from domain.model import ActionResult
from starter.edge.tree import crm_remarks
from tests.patience import PATIENCE
from tests.test_edge.kit import QUICK, Edge, fault, words
from tests.test_edge.processes import CrmProcess, crm_process

GENTLE = ("tests.test_edge.gentlecrm:run_crm_command",)


@asynccontextmanager
async def site(edge: Edge, home: Path, address: str, *faults: CrmFault, **patience: Any) -> AsyncIterator[CrmProcess]:
    """A cloudlet whose CRM is a process, with a cluster on it."""
    path = edge.at("berlin")
    async with crm_process(home, address, path, program=GENTLE) as crm:
        crm.platform.set_faults(faults)
        assert (await edge.user.do(path, "create", spec={"patience": {**QUICK, **patience}})).status == "Ready"
        await edge.user.do(edge.at("berlin", "c1"), "create", spec={})
        yield crm


async def until_handed_over(edge: Edge, path: str) -> None:
    """Until CRMv2 was let in, as the first CRM was before, even if it is Ready by now."""
    async with asyncio.timeout(PATIENCE):
        while words(await edge.walk(path)).count("InitOk") < 2:
            await asyncio.sleep(0.05)


async def test_an_upgrade_hands_over_from_one_process_to_the_next(
    edge: Edge, home: Path, temporal_address: str
) -> None:
    path = edge.at("berlin")
    async with site(edge, home, temporal_address, fault("slow", "gather", version="v2", seconds=1)) as crm:
        first = crm.pid_of("v1")
        ticket = await edge.begun(path, "upgrade", spec={"version": "v2"})
        refused = await edge.user.refused(edge.at("berlin", "c2"), "create", spec={})
        assert refused.startswith(f"409 Conflict: other action currently happening on {path}: upgrade since ")
        outcome = await edge.end(ticket)
        assert (outcome.result, outcome.status) == (ActionResult.SUCCEEDED, "Ready")
        assert first
        assert await crm.process.wait() == 0  # CRMv2 ended it
        assert crm.pid_of("v2") not in (0, first)
        view = await edge.see(path)
        assert (view.info["crm"]["version"], view.spec["version"], "next" in view.info) == ("v2", "v2", False)
        assert await edge.walk(path) == [
            ("User", "None", "Init"),
            ("Controller", "Init", "InitOk"),
            ("CRM", "InitOk", "Ready"),
            ("User", "Ready", "UpdateRequested"),
            ("CRMv1", "UpdateRequested", "Updating"),
            ("Controller", "Updating", "InitOk"),
            ("CRMv2", "InitOk", "Ready"),
        ]
        assert (await edge.user.do(edge.at("berlin", "c2"), "create", spec={})).status == "Ready"
        assert edge.at("berlin", "c1") in crm.platform.read_expected_specs()  # Ready triggered the sending of all data
        await edge.at_rest()
        assert "runs v2 already" in await edge.user.refused(path, "upgrade", spec={"version": "v2"})


async def test_after_an_upgrade_the_hint_starts_the_new_version(edge: Edge, home: Path, temporal_address: str) -> None:
    """A CRM of the old version would be ignored for ever."""
    path = edge.at("berlin")
    async with site(edge, home, temporal_address) as crm:
        assert (await edge.user.do(path, "upgrade", spec={"version": "v2"})).status == "Ready"
        os.kill(crm.pid_of("v2"), signal.SIGKILL)
        await edge.until_missed(path)
        ticket = await edge.user.ask(edge.at("berlin", "c2"), "create", spec={})
        assert ticket.admission.refusal
        hint = ticket.admission.refusal.hint
        assert hint.endswith(" --version v2")
        ((_, remark),) = await crm_remarks(edge.user.asking, await edge.see(path))
        assert remark.endswith(" --version v2")
        async with crm_process(home, temporal_address, path, hint.split()[-1]):
            await edge.until(path, "Ready")


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (fault("fail", "start", "v2", message="no image for v2"), "no image for v2"),
        (fault("crash-before", "start", version="v2"), "v2 ended with 1 before it took over"),
        (fault("fail", "gather", version="v2", message="the platform says no"), "v2 ended with 1 before it took over"),
        (fault("crash-before", "gather", version="v2"), "v2 ended with 137 before it took over"),
    ],
    ids=["cannot be started", "ends at its start", "fails at bring-up", "crashes at bring-up"],
)
async def test_a_failed_upgrade_leaves_crmv1_serving_and_the_cloudlet_in_updateerror_until_repair(
    edge: Edge, home: Path, temporal_address: str, broken: CrmFault, message: str
) -> None:
    path, cluster = edge.at("berlin"), edge.at("berlin", "c1")
    async with site(edge, home, temporal_address, broken) as crm:
        outcome = await edge.user.do(path, "upgrade", spec={"version": "v2"})
        assert (outcome.result, outcome.status) == (ActionResult.FAILED, "UpdateError")
        assert message in outcome.message
        assert crm.running
        assert crm.pid_of("v2") == 0
        assert (await edge.see(path)).info["crm"]["version"] == "v1"
        await edge.until_told(path, "it serves on; the state stays")  # CRMv1 says Ready, and that changes nothing
        assert await edge.status(path) == "UpdateError"
        for action in ("update", "delete"):
            refused = await edge.user.refused(cluster, action)
            assert refused == f"Cloudlet {path} takes no changes now: its upgrade failed (UpdateError)"
        crm.platform.set_faults([])
        assert (await edge.user.do(path, "repair")).status == "Ready"
        assert (await edge.user.do(cluster, "delete")).status == "None"
        assert words(await edge.walk(path))[-4:] == ["UpdateError", "Init", "InitOk", "Ready"]
        await edge.at_rest()


async def test_an_upgrade_goes_on_when_crmv1_dies_after_it_started_crmv2(
    edge: Edge, home: Path, temporal_address: str
) -> None:
    path = edge.at("berlin")
    async with site(edge, home, temporal_address, fault("slow", "gather", version="v2", seconds=1)) as crm:
        ticket = await edge.begun(path, "upgrade", spec={"version": "v2"})
        await until_handed_over(edge, path)
        await crm.kill()
        assert (await edge.end(ticket)).status == "Ready"
        assert crm.pid_of("v2")


async def test_an_upgrade_goes_on_when_crmv1_died_before_it_did_anything_and_is_back(
    edge: Edge, home: Path, temporal_address: str
) -> None:
    path = edge.at("berlin")
    async with site(edge, home, temporal_address) as crm:
        os.kill(crm.process.pid, signal.SIGSTOP)  # it hears nothing of the upgrade
        ticket = await edge.begun(path, "upgrade", spec={"version": "v2"})
        await edge.until(path, "UpdateRequested")
        await crm.kill()
        async with crm_process(home, temporal_address, path):
            outcome = await edge.end(ticket)
            assert (outcome.result, outcome.status) == (ActionResult.SUCCEEDED, "Ready")


async def test_an_upgrade_goes_on_when_crmv2_dies_after_it_ended_crmv1_and_is_back(
    edge: Edge, home: Path, temporal_address: str
) -> None:
    path = edge.at("berlin")
    async with site(edge, home, temporal_address, fault("slow", "gather", version="v2", seconds=1)) as crm:
        ticket = await edge.begun(path, "upgrade", spec={"version": "v2"})
        await until_handed_over(edge, path)
        await crm.kill()
        os.kill(crm.pid_of("v2"), signal.SIGKILL)
        async with crm_process(home, temporal_address, path, version="v2"):
            assert (await edge.end(ticket)).status == "Ready"


async def test_an_upgrade_that_nobody_answers_ends_in_updateerror(edge: Edge) -> None:
    path = await edge.up(update=0.5)
    edge.set_faults(fault("silent", "upgrade"))
    outcome = await edge.user.do(path, "upgrade", spec={"version": "v2"})
    assert (outcome.result, outcome.status) == (ActionResult.FAILED, "UpdateError")
    assert "no answer in time under UpdateRequested" in outcome.message
    assert (await edge.walk(path))[-1] == ("Controller", "UpdateRequested", "UpdateError")


async def test_the_upgrade_table_hears_only_the_crm_whose_turn_it_is(edge: Edge) -> None:
    path = await edge.up()
    edge.set_faults(fault("silent", "upgrade"))
    current = await edge.notify_id()
    ticket = await edge.begun(path, "upgrade", spec={"version": "v2"})
    await edge.say(path, "Ready")  # CRMv1 cannot end the upgrade
    await edge.until_told(path, "no row lets CRMv1 move Cloudlet from UpdateRequested to Ready")
    await edge.say(path, "Updating")
    await edge.until(path, "Updating")
    await edge.connect("berlin", {"notify_id": current + 1, "version": "v2"})
    await edge.until(path, "InitOk")
    await edge.say(path, "UpdateError", notify_id=current + 1, errors=["not yours to say"])
    await edge.until_told(path, "no row lets CRMv2 move Cloudlet from InitOk to UpdateError")
    await edge.say(path, "Ready", notify_id=current + 1)
    assert (await edge.end(ticket)).status in ("Ready", "Offline")  # there is no process behind that connection
    assert words(await edge.walk(path))[3:7] == ["UpdateRequested", "Updating", "InitOk", "Ready"]
    await asyncio.sleep(0)
