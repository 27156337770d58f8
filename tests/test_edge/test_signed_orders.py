"""Orders to CRMs are signed with the workers' key: a CRM that knows it carries out nobody else's."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from activities.proofs import generate_key_pair
from client.actions import ActionClient
from domain.edge import messages
from domain.edge.messages import CrmRequest, CrmRequests, CrmVerb
from domain.errors import Refused
from domain.model import Request
from providers.edge.token import ControllerKeys, CrmToken
from tests.patience import PATIENCE
from tests.stack import opened
from tests.test_edge.kit import QUICK, Edge, edge_of, wait_until_idle
from tests.user import User

WORKER_PEM, WORKER_KEY = generate_key_pair()
OTHER_PEM, OTHER_KEY = generate_key_pair()


def key_in(file: Path, pem: bytes) -> CrmToken:
    file.write_bytes(pem)
    file.chmod(0o600)
    return CrmToken(file, required=True)


def signed_by(key: CrmToken, request: CrmRequest) -> CrmRequest:
    return request.model_copy(update={"proof": key.sign_text(request.text_to_sign)})


@pytest.fixture
async def edge(tmp_path: Path) -> AsyncIterator[Edge]:
    """A cloudlet whose workers have a key, and a CRM that knows it."""
    key_in(tmp_path / "key.pem", WORKER_PEM)
    async with opened(tmp_path / "home", key_file=str(tmp_path / "key.pem"), subject="workers") as site:
        user = User(ActionClient(site.client), site.stack, "acme")
        async with edge_of(user, tmp_path / "home", site.client) as edge:
            await edge.start_crm(controllers=ControllerKeys([OTHER_KEY, WORKER_KEY]))
            assert (await user.do(edge.at("berlin"), "create", spec={"patience": QUICK})).status == "Ready"
            yield edge


async def test_a_crm_carries_out_the_orders_of_its_controller_and_of_nobody_else(edge: Edge, tmp_path: Path) -> None:
    cluster = edge.at("berlin", "c1")
    assert (await edge.user.do(cluster, "create", spec={})).status == "Ready"
    agent, _, platform = edge.crms["berlin-v1"]
    ours, stranger = (
        key_in(tmp_path / "ours.pem", WORKER_PEM),
        key_in(tmp_path / "stranger.pem", generate_key_pair()[0]),
    )
    epoch = (await edge.see(cluster)).epoch + 1
    order = CrmRequest(path=cluster, verb=CrmVerb.DELETE, notify_id=agent.notify_id, version="v1", epoch=epoch)
    elsewhere = order.model_copy(update={"path": cluster.replace("berlin", "munich")})
    forged = {
        "unsigned": order,
        "no signature": order.model_copy(update={"proof": "x"}),
        "of a stranger": signed_by(stranger, order),
        "of another order": signed_by(ours, order).model_copy(update={"epoch": epoch + 1}),
        "of another verb": signed_by(ours, order.model_copy(update={"verb": CrmVerb.REPORT})).model_copy(
            update={"verb": CrmVerb.DELETE}
        ),
        "of another connection": signed_by(
            ours, order.model_copy(update={"notify_id": agent.notify_id + 1})
        ).model_copy(update={"notify_id": agent.notify_id}),
        "of another cloudlet": signed_by(ours, elsewhere),
    }
    for request in forged.values():
        assert await send(edge, request) == 0
    assert await send(edge, *forged.values(), signed_by(ours, order)) == 1
    await wait_until_idle(agent._jobs, cluster)
    assert platform.list_applied_verbs(cluster) == ["create", "delete"]


async def test_all_data_that_was_signed_before_cannot_be_sent_again_after_a_newer_one(
    edge: Edge, tmp_path: Path
) -> None:
    """Its specs would replace those of now. The controller's own says when it was read, under its signature."""
    agent, _, platform = edge.crms["berlin-v1"]
    async with asyncio.timeout(PATIENCE):
        while not agent._data_at:  # of what it got as it became Ready
            await asyncio.sleep(0.02)
    later = agent._data_at + 3_600_000_000  # than whatever else its controller sends meanwhile
    ours, cluster = key_in(tmp_path / "ours.pem", WORKER_PEM), edge.at("berlin", "c1")

    def all_data(sending: str, at: int, *pages: int, nodes: int) -> list[CrmRequest]:
        order = CrmRequest(path=edge.at("berlin"), verb=CrmVerb.ALL_DATA, notify_id=agent.notify_id, version="v1")
        specs = [{f"{cluster}{page}": {"nodes": nodes}} for page in (1, 2)]
        spec = {"sending": sending, "at": at, "of": 2}
        return [
            signed_by(ours, order.model_copy(update={"spec": {**spec, "page": page, "instances": specs[page - 1]}}))
            for page in pages
        ]

    old, new = all_data("old", later, 1, 2, nodes=1), all_data("new", later + 1, 2, 1, nodes=2)
    for orders, nodes in ((old, 1), (new, 2), (old, 2), (all_data("bare", 0, 1, 2, nodes=9), 2), (new, 2)):
        assert await send(edge, *orders) == 2
        async with asyncio.timeout(PATIENCE):
            while agent._side:  # until it has handled them
                await asyncio.sleep(0.01)
        assert platform.read_expected_specs() == {f"{cluster}{page}": {"nodes": nodes} for page in (1, 2)}


async def send(edge: Edge, *requests: CrmRequest) -> int:
    """Sends orders as whoever may write to the namespace can. Returns how many the CRM accepted."""
    async with asyncio.timeout(PATIENCE):
        accepted: int = await edge.client.execute_activity(
            messages.CRM_REQUESTS,
            CrmRequests(requests=list(requests)),
            id=uuid.uuid4().hex,
            task_queue=messages.crm_queue(edge.at("berlin"), "v1"),
            result_type=int,
            schedule_to_close_timeout=timedelta(seconds=PATIENCE),
        )
        return accepted


@pytest.mark.parametrize(
    "text", ["", "rsa:AAAA", "ed25519:AAAA", "ed25519:ä", pytest.param(f"{WORKER_KEY}A", id="too long")]
)
def test_what_is_no_key_of_a_controller_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="RATCHET_CONTROLLER_KEYS"):
        ControllerKeys([text])


async def test_a_cloudlet_with_a_webhook_that_is_not_listed_is_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    async with opened(tmp_path, webhooks="https://crm.example.com") as site:
        user = User(ActionClient(site.client), site.stack, "acme")
        for url in ("http://crm.example.com/x", "https://169.254.169.254/"):
            asked = Request(path="org:acme:cloudlet:berlin", action="create", spec={"transport": "webhook", "url": url})
            ticket = await user.asking.request_action(asked)
            for refusal in (ticket.admission.refusal, (await user.asking.check_request(asked)).refusal):
                assert refusal, ticket
                assert refusal.message.endswith("is not among RATCHET_WEBHOOKS of the workers: nothing was changed")
                assert "list its origin there" in refusal.hint
        assert not [view async for view in user.asking.iterate_objects("cloudlet")]
