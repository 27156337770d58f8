"""A CRM that ends the one before it by force only after as long as tests wait: a busy machine is no failure.

`python -m tests.test_edge.gentlecrm WORDS` is `python -m workers.crm WORDS`, also for the CRM that an upgrade starts.
"""

from __future__ import annotations

from providers.edge import crm as reference
from providers.edge import handover
from tests.patience import PATIENCE
from workers import crm

_command = crm._crm_command


def gentle_command(options: crm.CrmOptions) -> list[str]:
    return [__spec__.name if word == crm.__name__ else word for word in _command(options)]


def run_crm_command() -> None:
    handover.GRACE_SECONDS = reference.ACK_TIMEOUT_WHEN_HEARD = PATIENCE
    crm._crm_command = gentle_command
    crm.run_crm_command()


if __name__ == "__main__":
    run_crm_command()
