"""Programs of ours where names must be proven: the workers' key signs what the clock and self-healing start."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from activities.proofs import ProofSigner, generate_key_pair
from client.actions import ActionClient
from client.message_signer import KeyMessageSigner
from domain.errors import Refused
from domain.healing import ANY_ACTION, HealFinding, SweepOptions
from domain.identities import Principal
from tests.stack import ActionStack, opened
from tests.test_leases.tenant import Tenant
from tests.test_machines.site import MachineSite, left_node

KEYS = {name: generate_key_pair() for name in ("ann", "workers")}


@pytest.fixture
async def strict(tmp_path: Path) -> AsyncIterator[ActionStack]:
    """A stack of its own whose workers want proofs, and have a key that vouches for our programs."""
    known: dict[str, Any] = {
        "subjects": {"ann": {"keys": [KEYS["ann"][1]]}},
        "issuers": {"workers": {"keys": [KEYS["workers"][1]], "vouches_for": ["clock", "self-healing"]}},
    }
    (tmp_path / "identities.yaml").write_text(json.dumps(known))
    (tmp_path / "key.pem").touch(0o600)
    (tmp_path / "key.pem").write_bytes(KEYS["workers"][0])
    home = tmp_path / "home"
    home.mkdir(0o700)
    files = {"identities": str(tmp_path / "identities.yaml"), "key_file": str(tmp_path / "key.pem")}
    async with opened(home, None, subject="workers", **files) as running:
        yield running


def as_ann(running: ActionStack) -> ActionClient:
    signer = ProofSigner(KEYS["ann"][0], "ann", running.client.namespace)
    return ActionClient(running.client, message_signer=KeyMessageSigner(signer))


async def test_the_clock_and_self_healing_work_where_names_must_be_proven(strict: ActionStack, tmp_path: Path) -> None:
    tenant = Tenant(as_ann(strict), strict.stack, "proven")
    await tenant.add_hosts("h1")
    await tenant.create(start="now", end="+2h")
    await tenant.until_status("ACTIVE")
    started = next(line for line in await tenant.history(tenant.lease()) if line.action == "start")
    assert (started.requested_by, started.on_behalf_of) == ("clock", "ann")

    site = MachineSite(as_ann(strict), strict.stack, "proven")
    node = await left_node(site)
    clear = SweepOptions(limits={ANY_ACTION: 0}, grace=0)
    await site.asking.run_sweep(clear)  # it ends the dead action
    [removed] = (await site.asking.run_sweep(clear)).found  # self-healing removes what that left, by its own action
    assert (removed.path, removed.finding) == (node, HealFinding.REMOVED)

    (tmp_path / "identities.yaml").write_text(
        json.dumps({"subjects": {}, "issuers": {"workers": {"keys": [KEYS["workers"][1]], "vouches_for": ["clock"]}}})
    )
    ann = Principal(name="ann", proven=True)
    with pytest.raises(Refused, match="ann is not known any more"):
        strict.stack.authorizer.identify.look_up_principal(ann)
    await tenant.stop_clock()
