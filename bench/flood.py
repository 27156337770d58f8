"""The flood of the tenants' benchmark, in a process of its own: its work must not slow down the worker that it floods.

It prints a line when it is connected, and its rates when a line comes in.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import count
from pathlib import Path
from unittest.mock import patch

from temporalio.common import Priority
from temporalio.service import RPCError

from bench.stack import run
from client import launching
from client.connection import connect_temporal
from client.errors import Unanswered
from domain.model import Request
from gateway.reads import GatewayClient
from workers.plugin import temporal_plugin

IMPATIENCE = 0.05  # seconds after which a refused user of the flood asks again, whatever it was told
FLOOD = 16  # requests of the flood that are always under way
LOUD = "ns:loud:mci:m{}"
UNFAIR = "unfair"


async def main(home: Path, fairness: AbstractContextManager[object]) -> None:
    """Suspends and resumes the flood's MCIs all the time; who is refused asks again, much too soon."""
    # Tenants come through a gateway, which knows who was told to ask later.
    loud = GatewayClient(await connect_temporal(home, temporal_plugin()))
    done, refused = count(), count()

    async def keep_asking(number: int) -> None:
        path = LOUD.format(number)
        for turn in count():
            request = Request(path=path, action=("suspend", "resume")[turn % 2])
            with suppress(Unanswered, RPCError):  # too much for the workers: asked again at once
                ticket = await loud.request_action(request)
                if ticket.admission.refusal:
                    next(refused)
                    await asyncio.sleep(IMPATIENCE)
                else:
                    await loud.wait_for_outcome(path, ticket.run)
                    next(done)

    with fairness:
        users = [asyncio.create_task(keep_asking(number)) for number in range(FLOOD)]
        print("asking", flush=True)
        began = time.perf_counter()
        end = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
        first, _ = await asyncio.wait([end, *users], return_when=asyncio.FIRST_COMPLETED)
        for broken in first - {end}:
            broken.result()
    seconds = time.perf_counter() - began
    print(f"{next(done) / seconds:.0f} actions, {next(refused) / seconds:.0f} refused", flush=True)


if __name__ == "__main__":
    unfair = patch.object(launching, "tenant_priority", lambda _path: Priority.default)
    run(main(Path(sys.argv[1]), unfair if UNFAIR in sys.argv[2:] else nullcontext()))
