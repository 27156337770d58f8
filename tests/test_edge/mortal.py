"""A CRM in a process of its own, which kills itself with -9 at one of its steps.

`python -m tests.test_edge.mortal STEP WORDS` is `python -m workers.crm WORDS`. A step is a write to its records or to
its ledger, a process that starts or gets a signal, or a message to the controller; before and after. Step 0: it lives.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from providers.edge.controller import ControllerClient
from providers.edge.platform import CloudletPlatform
from providers.services.ledger import BackendLedger
from tests.steps import StepCounter
from workers.crm import run_crm_command

LEDGER_WRITES = ("record_service_orders", "remove_services", "insert_instances", "update_instances", "delete_instances")
COUNT_FILE = "MORTAL_COUNT"  # the variable that names the file for the number of steps so far


class NotedCounter(StepCounter):
    """Writes down how many steps there were."""

    def take(self, *_: object) -> None:
        super().take()
        if file := os.environ.get(COUNT_FILE):
            fresh = Path(f"{file}.new")
            fresh.write_text(str(self.count))
            fresh.replace(file)  # whoever reads it finds a number

    def around(self, owner: Any, name: str) -> None:
        wrapped = getattr(owner, name)

        def run(*words: Any, **more: Any) -> Any:
            self.take()
            result = wrapped(*words, **more)
            self.take()
            return result

        setattr(owner, name, run)


def count_steps(steps: NotedCounter) -> None:
    for name in LEDGER_WRITES:
        steps.before_and_after(BackendLedger, name)
    steps.before_and_after(ControllerClient, "send_answer")
    for owner, name in (
        (CloudletPlatform, "put_instance"),
        (CloudletPlatform, "remove_instance"),
        (subprocess, "Popen"),
        (os, "killpg"),
    ):
        steps.around(owner, name)


def main() -> None:
    count_steps(NotedCounter(int(sys.argv.pop(1))))
    run_crm_command()


if __name__ == "__main__":
    main()
