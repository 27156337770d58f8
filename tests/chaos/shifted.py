"""A worker with crash points whose wall clock a test can set.

Everything of ours that asks for the time of day gets it with as many seconds more as the file CLOCK_FILE says.
Temporal's own code is left alone: timers are the server's, and that clock is right.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import datetime, timedelta, tzinfo
from pathlib import Path

from domain import model  # noqa: F401  its models keep the real type
from tests.chaos.crash import CrashingService
from workers import __main__, service  # noqa: F401  everything that a worker imports

OURS = ("store", "providers", "activities", "client", "workers")
_file = Path(os.environ["CLOCK_FILE"])
_time = time.time


def ahead() -> float:
    try:
        return float(_file.read_text() or 0)
    except (OSError, ValueError):
        return 0.0


class Shifted(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return datetime.now(tz) + timedelta(seconds=ahead())


def shift() -> int:
    """Replace the clock in every module of ours. Returns in how many."""
    time.time = lambda: _time() + ahead()
    mine = [module for name, module in list(sys.modules.items()) if name.split(".")[0] in OURS]
    client = [module for module in mine if getattr(module, "datetime", None) is datetime]
    for module in client:
        module.datetime = Shifted  # type: ignore[attr-defined]
    return len(client)


def main() -> None:
    if not shift():
        sys.exit("nothing of ours asks for the time any more: what is this for?")
    __main__.main(CrashingService)
