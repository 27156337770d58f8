"""`option: hold`: no VM before `continue`; after `withdraw` nothing is left."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.client import Client
from temporalio.testing import TimeSkipper

from client import actions
from client.actions import ActionClient, Ticket
from client.explaining import explain_object
from domain.access import AccessPolicy
from domain.errors import Category, Refused
from domain.healing import HealEntry, HealFinding, SweepOptions
from domain.mci.messages import CONTINUE, WITHDRAW, HoldDecision
from domain.model import ActionResult, Outcome, Request
from domain.ports import SHARED_RESOURCE_TYPES
from domain.statetable import RESTORED
from starter.mci import hold_remarks, requests
from store.identity import RESTORED_MESSAGE
from tests.patience import PATIENCE, answered, progress_of
from tests.test_crashes import MCI, site
from tests.test_platform.site import Site
from tests.user import User
from workers import embedded

__all__ = ["site"]

HOLD_SPEC = {"option": "hold", "subGroups": [{"name": "a", "csp": "aws", "region": "r1"}]}


@pytest.fixture(autouse=True)
def patient_with_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be asked how far it is in time holds nothing, or has no step: here it is waited for."""
    monkeypatch.setattr(actions, "PROGRESS_SECONDS", PATIENCE)


async def holding(user: User) -> Ticket:
    """An MCI that is prepared and waits."""
    ticket = await user.admitted(user.mci(), "create", spec=user.groups(option="hold"))
    await user.until_status(user.mci(), "Prepared")
    return ticket


async def end(user: User, ticket: Ticket) -> Outcome:
    return await user.asking.wait_for_outcome(ticket.path, ticket.run)


async def test_an_mci_that_holds_is_prepared_and_has_no_vm(user: User) -> None:
    ticket = await holding(user)
    seen = await user.see(user.mci())
    assert (seen.status, seen.phase, seen.members, seen.target_action) == ("Prepared", "Prepared", [], "create")
    assert set(await user.shared()) == set(SHARED_RESOURCE_TYPES)
    assert await user.books() == {}
    assert "409 Conflict" in await user.refused(user.mci(), "suspend")
    progress = await progress_of(user.asking, ticket.path, ticket.run)
    assert (progress.phase, progress.step) == ("Prepared", "holding: waits for continue or withdraw")
    await requests.send_decision(
        user.asking, user.mci(), CONTINUE, HoldDecision(requested_by="eve", reason="it is nine")
    )
    outcome = await end(user, ticket)
    assert (outcome.result, outcome.status) == (ActionResult.SUCCEEDED, "Running:2 (R:2/2)")
    assert "continue by eve: it is nine" in [line.message for line in await user.history(user.mci())]


async def test_withdraw_undoes_the_preparation_and_leaves_nothing(user: User) -> None:
    ticket = await holding(user)
    await requests.send_decision(user.asking, user.mci(), WITHDRAW, HoldDecision())
    outcome = await end(user, ticket)
    assert (outcome.result, outcome.status) == (ActionResult.CANCELLED, "None")
    assert outcome.message == "withdraw by nobody named; the preparation was undone"
    assert await user.shared() == {}
    with pytest.raises(Refused, match="there is no such MCI"):
        await user.see(user.mci())
    last = (await user.history(user.mci()))[-1]
    assert (last.source, last.to) == ("Prepared", "None")
    assert (await user.do(user.mci(), "create", spec=user.groups())).result is ActionResult.SUCCEEDED


async def test_continue_judges_the_clouds_of_the_tenant_again_and_withdraw_needs_none(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticket = await holding(user)
    everything = {"roles": {"all": {"kinds": ["*"], "actions": ["*"], "force": True}}, "users": {"*": ["all"]}}
    now = AccessPolicy.model_validate({**everything, "connections": {f"ns:{user.ns}": ["gcp"]}})
    monkeypatch.setattr(user.service.authorizer, "policy", lambda: now)  # since then, the tenant has lost aws
    with pytest.raises(Refused, match="may not use aws/") as caught:
        await requests.send_decision(user.asking, user.mci(), CONTINUE, HoldDecision(requested_by="eve"))
    assert caught.value.category is Category.FORBIDDEN
    await user.asking.client.get_workflow_handle(user.mci()).signal(CONTINUE)
    await requests.send_decision(user.asking, user.mci(), WITHDRAW, HoldDecision())
    outcome = await end(user, ticket)
    assert (outcome.result, outcome.status) == (ActionResult.CANCELLED, "None")
    lines = [line.message for line in await user.history(user.mci()) if "may not use aws/" in line.message]
    assert len(lines) == 2, "of the update and of the signal"


async def test_withdraw_leaves_alone_what_others_use(user: User) -> None:
    await user.do(user.mci("other"), "create", spec=user.groups())
    ticket = await holding(user)
    await requests.send_decision(user.asking, user.mci(), WITHDRAW, HoldDecision())
    await end(user, ticket)
    assert set(await user.shared()) == set(SHARED_RESOURCE_TYPES)


async def test_a_withdrawal_that_cannot_undo_everything_says_so(user: User) -> None:
    ticket = await holding(user)
    await user.place_fault("fail", verb="release", vm="vnet", message="stuck")
    await requests.send_decision(user.asking, user.mci(), WITHDRAW, HoldDecision())
    outcome = await end(user, ticket)
    assert (outcome.result, outcome.status) == (ActionResult.FAILED, "Failed")
    assert "stuck" in outcome.message
    await user.heal_faults()
    await user.do(user.mci(), "delete")
    assert await user.shared() == {}


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("word", [CONTINUE, WITHDRAW])
async def test_sent_to_an_mci_that_is_not_holding_it_is_refused(user: User, word: str, released: asyncio.Event) -> None:
    with pytest.raises(Refused, match="there is no such MCI"):
        await requests.send_decision(user.asking, user.mci(), word, HoldDecision())
    await user.do(user.mci(), "create", spec=user.groups())
    with pytest.raises(
        Refused, match=rf"{word} is not allowed for MCI under Running:2 \(R:2/2\): it is not holding"
    ) as no:
        await requests.send_decision(user.asking, user.mci(), word, HoldDecision())
    assert no.value.category is Category.NOT_ALLOWED
    await user.fault("hang", verb="suspend")
    ticket = await user.admitted(user.mci(), "suspend")
    with pytest.raises(Refused, match=rf"{word} is not allowed for MCI under Suspending:2"):
        await requests.send_decision(user.asking, user.mci(), word, HoldDecision())
    released.set()
    assert (await end(user, ticket)).result is ActionResult.SUCCEEDED


@pytest.mark.usefixtures("patient")
async def test_a_word_that_comes_too_early_or_too_late_is_refused_or_kept_as_ignored(
    user: User, released: asyncio.Event
) -> None:
    await user.place_fault("hang", verb="prepare", vm="vnet")
    await user.fault("hang", verb="create")
    ticket = await user.admitted(user.mci(), "create", spec=user.groups(option="hold"))
    handle = user.asking.client.get_workflow_handle(user.mci())
    await handle.signal(CONTINUE, HoldDecision(requested_by="early bird"))
    with pytest.raises(Refused, match="withdraw is not allowed for MCI under Preparing: it is not holding"):
        await requests.send_decision(user.asking, user.mci(), WITHDRAW, HoldDecision())
    released.set()
    await user.until_status(user.mci(), "Prepared")
    released.clear()
    await handle.signal(CONTINUE, HoldDecision(requested_by="eve"))
    await user.until_status(user.mci(), "Creating:2 (R:0/2)")
    await handle.signal(WITHDRAW, HoldDecision(requested_by="late riser"))
    released.set()
    assert (await end(user, ticket)).status == "Running:2 (R:2/2)"
    ignored = [line.message for line in await user.history(user.mci()) if line.effect == "ignored"]
    assert ignored == [
        "ignored: no row leads there; continue by early bird: not holding",
        "ignored: no row leads there; withdraw by late riser: not holding",
    ]


async def test_the_words_work_over_plain_http_with_one_json_object(user: User, server: embedded.EmbeddedServer) -> None:
    ticket = await holding(user)
    body = {"input": [{"requested_by": "curl"}], "identity": "curl"}
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.http.rpartition(':')[2]}/api/v1/namespaces/default/workflows/{user.mci()}/signal/continue",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "Host": server.http.removeprefix("http://")},
        method="POST",
    )
    answer = await asyncio.to_thread(urllib.request.urlopen, request, timeout=PATIENCE)
    assert answer.status == 200
    assert (await end(user, ticket)).result is ActionResult.SUCCEEDED


async def test_the_words_work_with_the_temporal_command(user: User, server: embedded.EmbeddedServer) -> None:
    ticket = await holding(user)
    process = await asyncio.create_subprocess_exec(
        *(embedded.find_temporal_binary(), "workflow", "signal", "--workflow-id", user.mci(), "--name", "withdraw"),
        *("--input", '{"reason": "too dear"}', "--address", server.address),
        stdout=asyncio.subprocess.DEVNULL,
    )
    assert await process.wait() == 0
    assert (await end(user, ticket)).message.endswith("the preparation was undone")


async def test_a_held_creation_that_is_cancelled_is_undone(user: User) -> None:
    ticket = await holding(user)
    await user.asking.cancel_action(user.mci())
    outcome = await end(user, ticket)
    assert (outcome.result, outcome.status) == (ActionResult.CANCELLED, "Failed")
    assert await user.shared() == {}


async def test_a_forced_delete_takes_over_from_an_mci_that_holds(user: User) -> None:
    await holding(user)
    assert (await user.do(user.mci(), "delete", force=True)).result is ActionResult.SUCCEEDED
    assert await user.shared() == {}
    with pytest.raises(Refused, match="there is no such MCI"):
        await user.see(user.mci())


async def test_an_mci_holds_for_days(user: User) -> None:
    skipper = TimeSkipper(user.asking.client)
    patient = User(ActionClient(skipper.client), user.service, user.ns)
    ticket = await holding(patient)
    handle = skipper.client.get_workflow_handle(patient.mci())
    await skipper.fast_forward(handle, timedelta(days=9))
    assert (await patient.see(patient.mci())).status == "Prepared"
    await handle.signal(CONTINUE, HoldDecision())
    assert (await end(patient, ticket)).status == "Running:2 (R:2/2)"


async def test_an_mci_goes_on_holding_when_worker_and_server_are_killed(site: Site) -> None:
    async with site.worker():
        ticket = await ActionClient(site.client).request_action(Request(path=MCI, action="create", spec=HOLD_SPEC))
        assert ticket.admission.grant
        async with asyncio.timeout(PATIENCE):
            while (await site.inventory.read_object(MCI)).status != "Prepared":
                await asyncio.sleep(0.02)
    await site.restart_server()
    async with site.worker():
        await site.client.get_workflow_handle(MCI).signal(CONTINUE, HoldDecision(requested_by="eve"))
        async with asyncio.timeout(PATIENCE):
            assert (await ActionClient(site.client).wait_for_outcome(MCI, ticket.run)).status == "Running:1 (R:1/1)"


@pytest.mark.parametrize("by", ["signal", "update"])
@pytest.mark.parametrize("prepared", [False, True])
async def test_a_decision_is_taken_if_its_worker_died_just_after_it_had_written_prepared(
    site: Site, prepared: bool, by: str
) -> None:
    """The next worker gets the decision together with what came before it."""
    client = ActionClient(site.client)
    if prepared:
        async with site.worker():
            other = await client.request_action(
                Request(path=f"{MCI}-2", action="create", spec={**HOLD_SPEC, "option": ""})
            )
            assert (await client.wait_for_outcome(f"{MCI}-2", other.run)).result is ActionResult.SUCCEEDED
    async with site.worker(dies_at="advance:end") as first:
        request = Request(path=MCI, action="create", spec=HOLD_SPEC, request_id="held")
        asked = asyncio.create_task(answered(client, request))
        await first.process.wait()
    assert (await site.inventory.read_object(MCI)).status == "Prepared"
    handle, decision = site.client.get_workflow_handle(MCI), HoldDecision(requested_by="eve")
    if by == "signal":
        await handle.signal(CONTINUE, decision)
    else:
        deciding = asyncio.create_task(handle.execute_update(CONTINUE, decision, result_type=str))
    async with site.worker(), asyncio.timeout(PATIENCE):
        ticket = await asked
        assert (await client.wait_for_outcome(MCI, ticket.run)).status == "Running:1 (R:1/1)"
        if by == "update":
            assert await deciding == "continue it is"


@pytest.mark.parametrize("word", ["continue", "withdraw"])
async def test_a_signal_without_data_is_a_decision_of_nobody_named(user: User, client: Client, word: str) -> None:
    ticket = await holding(user)
    await client.get_workflow_handle(user.mci()).signal(word)
    outcome = await end(user, ticket)
    assert outcome.status == ("Running:2 (R:2/2)" if word == "continue" else "None")


@pytest.mark.parametrize("data", [{"who": "eve"}, "now", [1], 7])
async def test_a_signal_of_another_shape_is_told_in_the_history(user: User, client: Client, data: object) -> None:
    ticket = await holding(user)
    handle = client.get_workflow_handle(user.mci())
    await handle.signal("continue", data)
    async with asyncio.timeout(PATIENCE):
        while not (lines := [line for line in await user.history(user.mci()) if line.effect == "ignored"]):
            await asyncio.sleep(0.02)
    assert lines[0].message.startswith("ignored: continue: its data is not valid: ")
    assert "requested_by" in lines[0].message, "it names the fields that the data may have"
    assert "Input should be" not in lines[0].message
    explained = "\n".join(remark.text for remark in (await explain_object(user.asking, user.mci())).remarks)
    assert lines[0].message.removeprefix("ignored: ") in explained
    assert "?" not in explained
    assert (await user.see(user.mci())).status == "Prepared"
    await handle.signal("continue")
    assert (await end(user, ticket)).status.startswith("Running")


@pytest.mark.parametrize("by", ["signal", "update"])
async def test_a_decision_outlives_the_worker_that_has_begun_to_carry_it_out(site: Site, by: str) -> None:
    """The record says Creating by then: nobody may take the MCI for one that does not hold."""
    client, decision = ActionClient(site.client), HoldDecision(requested_by="eve")
    async with site.worker(dies_at="enrol_vms:end") as first:
        ticket = await client.request_action(Request(path=MCI, action="create", spec=HOLD_SPEC))
        async with asyncio.timeout(PATIENCE):
            while (await site.inventory.read_object(MCI)).status != "Prepared":
                await asyncio.sleep(0.02)
        handle = site.client.get_workflow_handle(MCI)
        if by == "signal":
            await handle.signal(CONTINUE, decision)
        else:
            deciding = asyncio.create_task(handle.execute_update(CONTINUE, decision, result_type=str))
        await first.process.wait()
    async with site.worker(), asyncio.timeout(PATIENCE):
        assert (await client.wait_for_outcome(MCI, ticket.run)).status == "Running:1 (R:1/1)"
        if by == "update":
            assert await deciding == "continue it is"


async def test_a_signal_that_no_action_takes_is_told_in_the_history_and_a_flood_of_them_is_not(
    user: User, client: Client
) -> None:
    ticket = await holding(user)
    handle = client.get_workflow_handle(user.mci())
    for _ in range(30):
        await handle.signal("go", {"on": True})
    await handle.signal("continue")
    assert (await end(user, ticket)).status.startswith("Running")
    messages = [line.message for line in await user.history(user.mci()) if line.effect == "ignored"]
    assert len(messages) == 10
    told = "ignored: go: this action takes no such signal; there are: continue, withdraw"
    assert set(messages) == {told}


async def test_an_mci_whose_hold_was_cut_off_is_offered_nothing_but_to_be_healed(user: User) -> None:
    ticket = await holding(user)
    await user.asking.client.get_workflow_handle(user.mci(), run_id=ticket.run).terminate()
    seen = await explain_object(user.asking, user.mci())
    assert "create: its workflow was ended from outside (terminated)" in str(seen.remarks)
    assert seen.hint.startswith("restore it now: starter heal")
    assert await hold_remarks(user.asking, await user.see(user.mci())) == []
    with pytest.raises(Refused, match="under Prepared: it is not holding: its create was cut off") as caught:
        await requests.send_decision(user.asking, user.mci(), CONTINUE, HoldDecision())
    assert "starter heal" in caught.value.hint
    assert f"starter explain {user.mci()}" in caught.value.hint
    report = await user.asking.run_sweep(SweepOptions(limits={"*": 0}))
    (healed,) = [entry for entry in report.found if entry.path == user.mci()]
    assert (healed.to, healed.message) == ("Failed", "abandoned: its workflow was not running; set to Failed")
    assert (await user.see(user.mci())).status == "Failed"
    assert (await user.history(user.mci()))[-1].message == healed.message
    outcome = await user.asking.wait_for_outcome(user.mci())
    assert (outcome.action, outcome.message) == ("create", f"abandoned: {healed.message}")


async def test_a_hold_whose_action_a_restore_has_ended_is_cancelled_by_a_sweep(user: User) -> None:
    """A run that holds asks the store nothing: it would stay open, and refuse every other action, for days."""
    ticket = await holding(user)
    long_ago = datetime.now(UTC) - timedelta(hours=1)
    await user.service.inventory.abandon_run(user.mci(), ticket.run, long_ago, RESTORED_MESSAGE)
    async with asyncio.timeout(PATIENCE):
        while not (dry := await swept(user, SweepOptions(dry_run=True))):
            await asyncio.sleep(0.1)  # Temporal lists a new run a moment later
    assert [(entry.finding, entry.run, entry.action) for entry in dry] == [
        (HealFinding.WOULD_CANCEL, ticket.run, "create")
    ]
    assert [entry.finding for entry in await swept(user, SweepOptions())] == [HealFinding.CANCELLED]
    outcome = await end(user, ticket)
    assert outcome.message == f"abandoned: {RESTORED_MESSAGE.replace(RESTORED, 'set to Failed')}"
    assert (await user.do(user.mci(), "delete")).result is ActionResult.SUCCEEDED
    assert await user.shared() == {}


async def swept(user: User, order: SweepOptions) -> list[HealEntry]:
    """What a sweep says of this test's MCI."""
    return [entry for entry in (await user.asking.run_sweep(order)).found if entry.path == user.mci()]
