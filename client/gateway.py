"""Finds the gateway of `starter up`, whose reads leave nothing in Temporal, and posts to it.

Its address is in a file of the home folder. Needs the standard library only: a command that prints what the gateway
answers loads no models.
"""

from __future__ import annotations

import getpass
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from client.homefiles import GATEWAY_FILE, LOGIN_FILE, read_embedded_options, write_private_file

READS_PATH = "/v1/reads"
STATUS_ROUTE = f"{READS_PATH}/status"  # a status as `starter` prints it
# With any other RATCHET_ or TEMPORAL_ variable, only a whole client knows whom to ask, and how to sign.
_KNOWN_VARIABLES = {"RATCHET_HOME", "RATCHET_SUBJECT", "RATCHET_COMMAND", "RATCHET_UI_URL"}
_PROFILES = ("~/.config/temporalio/temporal.toml", "~/Library/Application Support/temporalio/temporal.toml")


class GatewayAddress(NamedTuple):
    """A gateway, and the Temporal namespace whose objects it reads. The token is good for reads only."""

    url: str
    temporal: str
    namespace: str
    token: str

    @property
    def host_and_port(self) -> tuple[str, int]:
        """Where to connect to."""
        where = urlsplit(self.url)
        return where.hostname or "", where.port or 80

    def save_address(self, home: Path) -> None:
        """Writes the file; only its owner may read it, as it holds the token."""
        write_private_file(home / GATEWAY_FILE, json.dumps(self._asdict()))

    def compose_post(self, route: str, body: bytes) -> bytes:
        """Composes a request by HTTP/1.0, whose answer is complete when the connection ends: no library, no thread."""
        head = (
            f"POST {route} HTTP/1.0\r\nHost: {urlsplit(self.url).netloc}\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {self.token}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


def split_answer(answer: bytes) -> tuple[int, bytes]:
    """Returns the status and the content of an answer; raises ConnectionError if it is not complete."""
    headers, _, content = answer.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", headers)
    if not length or len(content) != int(length[1]):
        raise ConnectionError("the answer is not complete")
    return int(headers.split(b" ", 2)[1]), content


def find_gateway(home: Path, temporal: str, namespace: str) -> GatewayAddress | None:
    """Returns the gateway of this home folder, if it serves the namespace that the client is connected to."""
    try:
        found = GatewayAddress(**json.loads((home / GATEWAY_FILE).read_text()))
    except (OSError, ValueError, TypeError):
        return None
    return found if (found.temporal, found.namespace) == (temporal, namespace) else None


def find_own_address(environ: Mapping[str, str]) -> GatewayAddress | None:
    """Returns the gateway of the `starter up` in the home folder; None if a variable, a profile or a login may choose
    another server or another identity.
    """
    told = {name for name in environ if name.startswith(("RATCHET_", "TEMPORAL_"))}
    home = Path(environ.get("RATCHET_HOME", ".ratchet"))
    configured = "XDG_CONFIG_HOME" in environ or any(Path(name).expanduser().exists() for name in _PROFILES)
    if told - _KNOWN_VARIABLES or configured or (home / LOGIN_FILE).exists():
        return None
    return find_gateway(home, str(read_embedded_options(home).get("address", "")), "default")


def claimed_name(environ: Mapping[str, str]) -> str:
    """Returns the name under which an own program reads: RATCHET_SUBJECT, or the user's."""
    return environ.get("RATCHET_SUBJECT") or user_name()


def user_name() -> str:
    """Returns the user's name, from the operating system."""
    try:
        return getpass.getuser()[:100]
    except (KeyError, OSError):  # a container's user often has no name
        return ""


def delete_gateway_file(home: Path) -> None:
    """Removes the file."""
    with suppress(OSError):
        (home / GATEWAY_FILE).unlink(missing_ok=True)
