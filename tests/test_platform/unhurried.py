"""`starter` with limits as long as a test's patience: a worker that the machine keeps waiting is not taken for dead.

For tests in which no worker dies: whoever took over from one would have to wait as long.
"""

from __future__ import annotations

import sys
from datetime import timedelta

from temporalio.worker._workflow import _WorkflowWorker

from activities import healing, pollers
from client.admission import ActionStarter
from client.reading import Queries
from domain import limits
from starter import __main__
from tests.patience import PATIENCE
from workflows import calls

LONG = timedelta(seconds=PATIENCE)
LONGEST_TASK = timedelta(seconds=120)  # that Temporal allows


def raise_limits() -> None:
    calls.HEARTBEAT = limits.VALIDATE_TIMEOUT = pollers.CALL_TIMEOUT = LONG
    healing.HOLDERS_TIMEOUT = ActionStarter.admission_seconds = Queries.read_seconds = PATIENCE
    _WorkflowWorker._deadlock_timeout_seconds = property(lambda _self: PATIENCE, lambda _self, _seconds: None)  # type: ignore[assignment]
    for module in list(sys.modules.values()):  # a task that is given again is logged and counted again
        if getattr(module, "TASK_TIMEOUT", None) is limits.TASK_TIMEOUT and module is not limits:
            module.TASK_TIMEOUT = LONGEST_TASK  # type: ignore[attr-defined]


def main() -> None:
    raise_limits()
    __main__.main()
