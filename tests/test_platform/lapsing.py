"""`starter` whose journal of the simulated clouds also says until when the worker's permits are good."""

from __future__ import annotations

import json
import os
import time

from activities import permits
from activities.fence import seconds_since_boot
from domain.permits import PermitRequest
from starter import __main__

_journal = os.open(os.environ["RATCHET_SIMULATED_JOURNAL"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
_exchange = permits._CloudPermits._exchange_permits


async def exchange(self: permits._CloudPermits, wishes: list[PermitRequest]) -> float:
    pause = await _exchange(self, wishes)
    now = time.monotonic()
    line = {"at": now, "pid": os.getpid(), "csp": self._csp, "until": now + self._until - seconds_since_boot()}
    os.write(_journal, f"{json.dumps(line)}\n".encode())
    return pause


def main() -> None:
    permits._CloudPermits._exchange_permits = exchange  # type: ignore[method-assign,assignment]
    __main__.main()
