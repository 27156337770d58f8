"""A site with a policy, encryption keys and secrets: who is refused, what Temporal sees, and where no secret is."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
import sqlalchemy as sa
from temporalio.client import Client

from activities.access import Authorizer
from client.actions import ActionClient
from client.connection import connect_temporal
from client.payloads import data_converter
from domain.edge.messages import DEMAND_SIGNAL, LOOP_ROLE
from domain.edge.policies import PolicyState
from domain.model import ActionResult, Request
from domain.wire import companion_id
from store.inventory import SqlInventory
from tests.patience import PATIENCE, answer_of
from tests.test_platform.forkserver import ForkServer
from tests.test_platform.site import ROOT, Site, open_postgres_site
from tests.test_platform.test_payloads import NEW, OLD, write
from tests.test_store.driver import dumped
from workers.families import FAMILIES, merge_hooks
from workers.plugin import temporal_plugin
from workers.settings import WorkerSettings

PASSWORD = "planted-password-9f2c"
REASON = "planted-reason-51ab"
SPEC = str(ROOT / "examples" / "mci-demo.yaml")


@dataclass
class Guarded:
    """The site, its users' commands, and everything that any of them was told."""

    site: Site
    keys: str
    heard: list[str] = field(default_factory=list)

    async def run(self, user: str, *words: str, **more: str) -> tuple[int, str]:
        code, said = await self.site.starter(*words, LOGNAME=user, **more)
        self.heard.append(said)
        return code, said

    async def stored(self) -> dict[str, str]:
        return {table: repr(rows) for table, rows in (await self.site.database.run_transaction(dumped)).items()}

    async def asked_for(self) -> dict[str, str]:
        """What requests can change. Permits are leases of the workers: they take, renew and give them back in time,
        whatever is asked, so that table is never twice the same. A refusal leaves a line in the history, which is
        sealed later, and no more."""
        others = ("permits", "history", "audit_seals")
        return {table: rows for table, rows in (await self.stored()).items() if table not in others}

    async def plainly(self) -> str:
        """All that Temporal keeps of every workflow, as somebody without keys sees it."""
        plain = await Client.connect(self.site.server.address)
        found = []
        async for execution in plain.list_workflows():
            handle = plain.get_workflow_handle(execution.id, run_id=execution.run_id)
            found.append((await handle.fetch_history()).to_json())
            found.append(str((await handle.describe()).raw_description))
        return "\n".join(found)


@pytest.fixture(scope="module")
async def guarded(
    tmp_path_factory: pytest.TempPathFactory, postgres_url: str, forkserver: ForkServer
) -> AsyncIterator[Guarded]:
    home = tmp_path_factory.mktemp("guarded")
    async with open_postgres_site(home, postgres_url, forkserver) as site:
        keys = write(home / "keys.yaml", "old", old=OLD)
        url = sa.make_url(site.environment["RATCHET_STORE_URL"]).set(password=PASSWORD)
        site.environment |= {
            "RATCHET_STORE_URL": url.render_as_string(hide_password=False),
            "RATCHET_POLICY_FILE": str(ROOT / "examples" / "policy.yaml"),
            "RATCHET_KEYS_FILE": keys,
            "RATCHET_LOG_LEVEL": "debug",
            "RATCHET_HEAL_INTERVAL": "0",  # what a sweep writes nobody asked for
        }
        site.client = await connect_temporal(
            home, temporal_plugin(payloads=data_converter(WorkerSettings(home=home, keys_file=keys)))
        )
        async with site.worker():
            yield Guarded(site, keys)


async def test_whoever_may_does_and_the_history_says_who_it_was(guarded: Guarded) -> None:
    code, said = await guarded.run("root", "mci", "create", "web/shop", "-f", SPEC, "--reason", REASON)
    assert code == 0, said
    assert (await guarded.run("night-shift", "mci", "suspend", "web/shop"))[0] == 0
    code, said = await guarded.run("night-shift", "history", "web/shop", "-o", "json")
    told = dict.fromkeys((line["action"], line["requested_by"]) for line in json.loads(said))
    assert list(told) == [("create", "root"), ("suspend", "night-shift")]


@pytest.mark.parametrize(
    ("user", "words"),
    [
        ("night-shift", "mci terminate web/shop"),
        ("night-shift", "mci resume web/shop --force"),
        ("wanda", "mci create other/shop"),
        ("eve", "mci resume web/shop"),
        ("night-shift", "mci terminate web/shop --dry-run"),
    ],
)
async def test_whoever_may_not_is_refused_and_nothing_is_written(guarded: Guarded, user: str, words: str) -> None:
    before = await guarded.asked_for()
    file = ("-f", SPEC) if "create" in words else ()
    code, said = await guarded.run(user, *words.split(), *file)
    assert (code, f"{user} may not {words.split()[1]}" in said, "RATCHET_POLICY_FILE" in said) == (4, True, True), said
    assert await guarded.asked_for() == before


async def test_whoever_may_not_does_not_end_what_runs_either(guarded: Guarded) -> None:
    site, path = guarded.site, "ns:web:mci:shop"
    await site.hang("resume", 1.5, "front-1")
    running = await site.asking.request_action(Request(path=path, action="resume", requested_by="wanda"))
    await site.until_hanging()
    code, said = await guarded.run("wanda", "mci", "terminate", "web/shop", "--force")
    assert (code, "wanda may not terminate" in said) == (4, True), said
    assert (await site.asking.wait_for_outcome(path, running.run)).result is ActionResult.SUCCEEDED


async def test_temporal_sees_neither_what_is_asked_nor_why(guarded: Guarded) -> None:
    await guarded.run("root", "mci", "create", "web/shop", "-f", SPEC, "--reason", REASON)  # refused: it is there
    seen = await guarded.plainly()
    assert "ns:web:mci:shop" in seen  # the ID is the path, and paths are not hidden
    for hidden in (REASON, "night-shift", "subGroups", "succeeded", "not allowed"):
        assert hidden not in seen, hidden
    assert "binary/encrypted" in seen or "YmluYXJ5L2VuY3J5cHRlZA" in seen


async def test_a_command_without_the_key_is_told_so(guarded: Guarded) -> None:
    code, said = await guarded.run("root", "get", "web/shop", RATCHET_KEYS_FILE="")
    told = "the worker takes only what is encrypted with its keys; nothing was changed" in said
    assert (code, told, "set RATCHET_KEYS_FILE" in said) == (5, True, True), said


async def test_a_signal_that_nobody_can_decrypt_is_ignored_and_told_and_stops_nothing(guarded: Guarded) -> None:
    site, path = guarded.site, "org:web:policy:follow"
    rule = {"app": "shop", "cloudlets": [{"cloudlet": "berlin", "cluster": "c1"}], "min_active": 0}
    request = Request(path=path, action="create", spec={"auto_provision": rule}, requested_by="root")
    ticket = await site.asking.request_action(request)
    assert (await site.asking.wait_for_outcome(path, ticket.run)).status == "Active"
    theirs = write(site.home / "theirs.yaml", "new", new=NEW)
    stranger = await connect_temporal(
        site.home, temporal_plugin(payloads=data_converter(WorkerSettings(home=site.home, keys_file=theirs)))
    )
    loop, inventory = companion_id(path, LOOP_ROLE), SqlInventory(site.database, merge_hooks(FAMILIES), Authorizer())
    await stranger.get_workflow_handle(loop).signal(DEMAND_SIGNAL, {"cloudlet": "berlin", "clients": 9})
    async with asyncio.timeout(PATIENCE):
        while not (
            ignored := [line.message for line in await inventory.read_history(path, 9) if line.actor == "Demand"]
        ):
            await asyncio.sleep(0.05)
    assert "encrypted with the key 'new', which RATCHET_KEYS_FILE does not have" in ignored[0]
    handle = site.client.get_workflow_handle(loop)
    assert (await answer_of(handle, "memory", PolicyState)).clients == {}
    await handle.signal(DEMAND_SIGNAL, {"cloudlet": "berlin", "clients": 7, "requested_by": "root"})
    async with asyncio.timeout(PATIENCE):
        while (await answer_of(handle, "memory", PolicyState)).clients != {"berlin": 7}:
            await asyncio.sleep(0.05)


async def test_keys_are_rotated_while_an_action_runs(guarded: Guarded) -> None:
    site, path = guarded.site, "ns:web:mci:shop"
    await site.hang("suspend", 600, "front-1")
    running = await site.asking.request_action(Request(path=path, action="suspend", requested_by="root"))
    await site.until_hanging()
    both = write(site.home / "both.yaml", "new", old=OLD, new=NEW)
    async with site.worker(RATCHET_KEYS_FILE=both):
        site.workers[0].process.send_signal(signal.SIGTERM)
        client = await connect_temporal(
            site.home, temporal_plugin(payloads=data_converter(WorkerSettings(home=site.home, keys_file=both)))
        )
        assert (await ActionClient(client).wait_for_outcome(path, running.run)).result is ActionResult.SUCCEEDED
        code, said = await guarded.run("root", "get", "web/shop", RATCHET_KEYS_FILE=both)
        assert (code, "Suspended" in said) == (0, True), said


async def test_a_wrong_url_shows_no_password_not_even_in_a_traceback(guarded: Guarded) -> None:
    for url in (
        f"postgresql://me:{PASSWORD}@127.0.0.1:1/name",
        f"postgresql://me:{PASSWORD}@host:port/name",
        f"mysql://me:{PASSWORD}@host/name",
        f"postgresql://me@127.0.0.1:1/name?password={PASSWORD}",
    ):
        code, said = await guarded.run("root", "migrate", "--debug", RATCHET_STORE_URL=url)
        assert code in (2, 5), said
        assert "Traceback" in said


async def test_secrets_are_nowhere_but_where_they_were_put(guarded: Guarded) -> None:
    """The last test here: it looks through everything that the others left."""
    secrets = [PASSWORD, OLD, NEW, os.environ.get("PGPASSWORD") or PASSWORD]
    places = {
        "histories": await guarded.plainly(),
        "logs": "\n".join(worker.said() for worker in guarded.site.workers),
        "answers and errors": "\n".join(guarded.heard),
        "inventory": repr(await guarded.stored()),
        "server's log": (guarded.site.home / "temporal.log").read_text(),
    }
    assert '"serving"' in places["logs"]
    found = [(place, secret) for place, text in places.items() for secret in secrets if secret in text]
    assert found == []
