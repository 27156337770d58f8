"""A system on a backend that no worker serves is refused at once, with what to do."""

from __future__ import annotations

from pathlib import Path

from domain.model import Request
from tests.stack import opened, until_polled
from tests.user import User


async def test_a_system_on_a_backend_that_nobody_serves_is_refused_and_one_that_is_served_is_not(
    tmp_path: Path,
) -> None:
    asked = Request(path="system:shop", action="create", spec={"backend": "process"})
    async with opened(tmp_path, backends="simulated") as site:
        user = User(await until_polled(site.client), site.stack, "t1")
        ticket = await user.asking.request_action(asked)
        for refusal in (ticket.admission.refusal, (await user.asking.check_request(asked)).refusal):
            assert refusal
            assert refusal.message == "no worker serves the backend 'process': nothing was changed"
            assert "starter worker --queues backend-process" in refusal.hint
        assert (await user.do(asked.path, "create", spec={})).status == "stable"
