"""A worker's settings: what any client of Temporal needs, and the rest, from RATCHET_* variables."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from client.settings import ClientSettings, Word
from domain.limits import MAX_VMS_PER_MCI


class Settings(ClientSettings):
    """`RATCHET_STORE_URL=postgresql://… starter worker` and so on."""

    store_url: str = ""
    store_pool: int = Field(8, ge=1, le=100)
    cloud_url: str = ""
    drain: float = Field(10.0, ge=0)
    # Seconds that the next step of an action is kept for the worker that knows it. Short: a dead worker's actions go on
    # sooner elsewhere. Long: under load, fewer actions are read again from their beginning.
    step_patience: float = Field(5.0, gt=0)
    build: Word = ""
    sandbox: bool = False  # workflows run in Temporal's sandbox in our tests; here it would only cost CPU
    policy_file: str = ""  # who may do what
    crm_token_file: Path | None = None  # with which a CRM proves who it is; its own in the home if not said
    metrics: str = ""  # where Prometheus may ask, such as 127.0.0.1:9464
    log_format: Literal["json", "console"] = "json"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    call_timeout: float = Field(300.0, gt=0)
    patience: float = Field(900.0, gt=0)
    connections: Path | None = None  # a file of connections by name; the simulated clouds' own if there is none
    max_vms: int = Field(MAX_VMS_PER_MCI, ge=1, le=MAX_VMS_PER_MCI)  # in one MCI
    heal_interval: float = Field(300.0, ge=0)  # seconds between sweeps; 0: only when asked
    heal_limits: dict[str, Annotated[float, Field(ge=0)]] = {}  # seconds by kind.action, by kind, or for all as *
    retention: float = Field(0.0, ge=0)  # days for which ended actions and their history are kept; 0: for ever
    archive: Path | None = None  # where they go then; a folder in the home if not said
    simulated_journal: Path | None = None  # of calls to simulated clouds, over all processes: for tests
    simulated_latency: float = Field(0.3, ge=0)
    simulated_jitter: float = Field(0.5, ge=0, le=1)

    def order_life(self) -> float:
        """Seconds after which no order of an action is on its way: all tries, and the last call of them."""
        return self.patience + self.call_timeout

    def store(self) -> str:
        """The inventory's database."""
        return self.store_url or f"sqlite:///{self.home / 'inventory.db'}"

    def cloud(self) -> str:
        """The simulated clouds' database: outside the inventory, as real clouds are."""
        return self.cloud_url or f"sqlite:///{self.home / 'cloud.db'}"

    def archive_folder(self) -> Path:
        """Where actions and history go that are older than the retention."""
        return self.archive or self.home / "archive"


def redacted(url: str) -> str:
    """A database URL that may be printed."""
    hidden = re.sub(r"(://[^:/@]*):.*@", r"\1:***@", url)
    return re.sub(r"(password=)[^&]*", r"\1***", hidden)
