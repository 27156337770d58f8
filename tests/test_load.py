"""Many users at once, briefly: every request is answered, and every promise holds afterwards."""

from __future__ import annotations

import asyncio
import os
import random

import pytest

from bench.load import SHORT, UserBehavior, create_load_objects, run_users
from bench.stack import BenchStack
from domain.invariants import VerificationReport
from domain.model import ReadQuery
from domain.wire import VERIFY_ACTIVITY
from tests.patience import PATIENCE
from tests.user import User

pytestmark = pytest.mark.stores("postgres")

USERS, SECONDS = 20, 4


async def test_every_request_of_many_users_is_answered(user: User, chaos: bool) -> None:
    seed = int(os.environ.get("RATCHET_CHAOS_SEED") or random.randrange(10**6))
    print(f"RATCHET_CHAOS_SEED={seed}")  # noqa: T201  shown when it fails
    site = BenchStack(user.asking.client, user.service, user.asking)
    async with asyncio.timeout(3 * PATIENCE), create_load_objects(site, SHORT) as picks:
        seconds = SECONDS * (10 if chaos else 1)
        while (log := await run_users(site, picks, USERS, seconds, seed, UserBehavior(bare=0))).asked <= USERS:
            seconds, seed = 2 * seconds, seed + 1  # on a busy machine nobody had the time for a second request
        found = await user.asking.run_query(VERIFY_ACTIVITY, ReadQuery(), VerificationReport, seconds=PATIENCE)
    assert log.answers.total() == log.asked
    assert log.answers["succeeded"] > 0
    known = {
        "cancelled",  # by a delete of the same lease
        "succeeded",
        "already",
        "failed",
        "partial",
        "refused: conflict",
        "refused: not_allowed",
        "refused: not_found",
    }
    assert set(log.answers) <= known, log.answers
    mine = [
        finding
        for finding in found.findings
        if ":load" in finding.path or finding.path.startswith(("node:load", "image:load"))
    ]
    assert mine == []
