"""A worker's settings: those of any Temporal client, and the rest, from RATCHET_* variables."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints
from pydantic_settings import NoDecode

from client.settings import ClientSettings, SettingWord
from domain.limits import MAX_VMS_PER_MCI
from domain.services.definition import BackendName
from domain.validation import Name


def split_words(text: str) -> list[str]:
    """Splits what commas separate."""
    return [word.strip() for word in text.split(",") if word.strip()]


def _split_text(given: object) -> object:
    return split_words(given) if isinstance(given, str) else given


def _split_urls(text: object) -> object:
    """Splits a list of URLs. Empty: there is no list; `none`: the list is empty; `*`: any."""
    return (_split_text(text) if text != "none" else ()) if text else None


def _check_absolute(path: str) -> str:
    if not path.startswith("/"):
        raise ValueError(f"{path[:80]!a} is not an absolute path")
    return path


BackendNames = Annotated[tuple[BackendName, ...], NoDecode, BeforeValidator(_split_text)]
KeyTexts = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split_text)]
NodeNames = Annotated[tuple[Name, ...], NoDecode, BeforeValidator(_split_text)]
UrlList = Annotated[
    tuple[Annotated[str, StringConstraints(pattern=r"^(\*|https?://[^/?#\s]+)$")], ...] | None,
    NoDecode,
    BeforeValidator(_split_urls),
]
ProgramPaths = Annotated[
    tuple[Annotated[str, AfterValidator(_check_absolute)], ...], NoDecode, BeforeValidator(_split_text)
]


class WorkerSettings(ClientSettings):
    """Settings of a worker: `RATCHET_STORE_URL=postgresql://… starter worker` and so on."""

    uses_login: ClassVar[bool] = False  # what serves others has a key of its own

    store_url: str = ""
    store_pool: int = Field(8, ge=1, le=100)
    cloud_url: str = ""
    drain: float = Field(10.0, ge=0)
    # Sticky timeout: seconds that a workflow task waits for the worker that has the workflow in its cache. Short:
    # a dead worker's actions continue sooner elsewhere. Long: fewer replays under load.
    step_patience: float = Field(5.0, gt=0)
    build: SettingWord = ""
    sandbox: bool = False  # on in our tests; in production it would only cost CPU
    policy_file: str = ""  # access policy
    quotas_file: str = ""  # how much each tenant may have and do; without it there are no limits
    identities: str = ""  # whose keys prove which names; without it names are claimed
    crm_token_file: Path | None = None  # a CRM's token; by default in the home
    controller_keys: KeyTexts = ()  # whose orders a CRM carries out; without it, everybody's
    metrics: str = ""  # address for Prometheus, such as 127.0.0.1:9464
    log_format: Literal["json", "console"] = "json"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    call_timeout: float = Field(300.0, gt=0)
    patience: float = Field(900.0, gt=0)
    connections: Path | None = None  # connections file; without one all clouds are simulated
    max_vms: int = Field(MAX_VMS_PER_MCI, ge=1, le=MAX_VMS_PER_MCI)  # in one MCI
    heal_interval: float = Field(300.0, ge=0)  # seconds between sweeps; 0: only on request
    heal_limits: dict[str, Annotated[float, Field(ge=0)]] = {}  # seconds by kind.action, by kind, or for all as *
    retention: float = Field(0.0, ge=0)  # days until ended actions and their history are archived; 0: never
    archive: Path | None = None  # archive folder; by default in the home
    simulated: Literal["on", "off"] = "on"  # off: refuse whatever needs a simulated provider
    backends: BackendNames = ("simulated",)  # of systems; `process` and `container` run on this machine
    nodes: NodeNames = ()  # of a real hypervisor: those that are this host; all that its file names by default
    programs: ProgramPaths = ()  # what `process` may run: files, or folders with a slash at the end
    images: ProgramPaths = ()  # what `container` may run: folders; with a slash at the end, of images
    container_network: Literal["own", "host"] = "own"  # host: services may ask for the machine's network
    max_containers: int = Field(200, ge=1, le=100_000)
    runc: str = "runc"
    service_users: Literal["own", "worker"] = "own"  # own: where the worker is root, each service has its own uid
    webhooks: UrlList = None  # origins that webhooks of CRMs may have, `*` is any; without it, public ones by https
    secrets: Path | None = None  # folder of services' secrets; by default in the home
    simulated_journal: Path | None = None  # journal of calls to simulated clouds, for tests
    simulated_latency: float = Field(0.3, ge=0)
    simulated_jitter: float = Field(0.5, ge=0, le=1)

    def order_lifetime(self) -> float:
        """Returns the seconds after which no order of an action can be on its way: all tries, and the last call."""
        return self.patience + self.call_timeout

    def store_database_url(self) -> str:
        """Returns the URL of the inventory's database."""
        return self.store_url or f"sqlite:///{self.home / 'inventory.db'}"

    def cloud_database_url(self) -> str:
        """Returns the URL of the simulated providers' database, which is apart from the inventory."""
        return self.cloud_url or f"sqlite:///{self.home / 'cloud.db'}"

    def secrets_folder(self) -> Path:
        """Returns the folder whose files services may refer to as secrets."""
        return self.secrets or self.home / "secrets"

    def archive_folder(self) -> Path:
        """Returns the folder for actions and history beyond the retention."""
        return self.archive or self.home / "archive"


def redact_url(url: str) -> str:
    """Returns a database URL without its password."""
    hidden = re.sub(r"(://[^:/@]*):.*@", r"\1:***@", url)
    return re.sub(r"(password=)[^&]*", r"\1***", hidden)
