"""The options of Ironic in the connections file."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from pydantic import Field, HttpUrl

from domain.connections import BackendOptions
from domain.errors import Category, Refused

HINT = "correct the connections file; docs/ironic.md describes it"


class IronicOptions(BackendOptions):
    """`hosts: {provider: ironic, url: …}`: a host of a pool is the node of the same name."""

    provider: Literal["ironic"]
    url: HttpUrl
    user: str = ""  # for http_basic; without one, requests carry no credentials
    password_file: Path | None = None
    instance_info: dict[str, str] = {}  # what Ironic deploys, such as image_source and image_checksum
    deploys: int = Field(3, ge=1, le=20)  # tries on one node before it is put into maintenance

    @property
    def identity(self) -> str:
        return f"ironic@{self.url}"

    def credentials(self) -> tuple[str, str] | None:
        """Returns the user and the password; None without a user. Refuses a file that cannot be read."""
        if not self.user:
            return None
        if self.password_file is None:
            raise Refused(Category.INVALID, "hosts.password_file is missing: a user needs a password", HINT)
        try:
            return self.user, self.password_file.read_text().strip()
        except OSError as error:
            raise Refused(Category.INVALID, f"the password file of hosts: {error.strerror}", HINT) from error

    def check_prerequisites(self) -> None:
        """Refuses missing credentials, or a host without the HTTP client."""
        if not find_spec("httpx"):
            raise Refused(Category.INVALID, "the hosts of ironic need httpx", "pip install 'ratchet[ironic]'")
        self.credentials()
