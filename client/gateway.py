"""Reads through the gateway of `starter up`, so that they leave nothing in Temporal.

Its address is in a file of the home folder. Where there is none, or it does not answer, a worker is asked instead.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from contextlib import suppress
from dataclasses import asdict, dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ValidationError

from client.homefiles import GATEWAY_FILE
from domain import wire
from domain.errors import Category, Refused

PROBLEM_PREFIX = "urn:ratchet:"
READS_PATH = "/v1/reads"
_WORKERS_OWN = {wire.READ_STORE}  # `starter doctor` asks it to learn which store the workers use
_CATEGORIES = {category.value for category in Category}
T = TypeVar("T", bound=BaseModel)


@dataclass(frozen=True)
class GatewayAddress:
    """A gateway, and the Temporal namespace whose objects it reads. The token is good for reads only."""

    url: str
    temporal: str
    namespace: str
    token: str

    def save_address(self, home: Path) -> None:
        """Writes the file; only its owner may read it, as it holds the token."""
        beside = home / f"{GATEWAY_FILE}.new"
        beside.unlink(missing_ok=True)
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            json.dump(asdict(self), out)
        beside.replace(home / GATEWAY_FILE)


def find_gateway(home: Path, temporal: str, namespace: str) -> GatewayAddress | None:
    """Returns the gateway of this home folder, if it serves the namespace that the client is connected to."""
    try:
        found = GatewayAddress(**json.loads((home / GATEWAY_FILE).read_text()))
    except (OSError, ValueError, TypeError):
        return None
    return found if (found.temporal, found.namespace) == (temporal, namespace) else None


def delete_gateway_file(home: Path) -> None:
    """Removes the file."""
    with suppress(OSError):
        (home / GATEWAY_FILE).unlink(missing_ok=True)


class GatewayReader:
    """Asks a gateway for reads."""

    def __init__(self, address: GatewayAddress) -> None:
        self._address = address

    async def try_read(self, name: str, query: BaseModel, answer: type[T], seconds: float) -> T | None:
        """Returns the answer; None if this gateway cannot give it, so that a worker must; or raises Refused."""
        if not name.startswith("read_") or name in _WORKERS_OWN:
            return None
        try:
            async with asyncio.timeout(seconds):
                status, body = await self._post(name, query.model_dump_json().encode())
            return _parse_answer(status, body, answer)
        except (OSError, ValidationError, ValueError):  # it is gone, or of another version
            return None

    async def _post(self, name: str, body: bytes) -> tuple[int, bytes]:
        """Posts by HTTP/1.0, whose answer is complete when the connection ends: no library, no thread."""
        where = urlsplit(self._address.url)
        reader, writer = await asyncio.open_connection(where.hostname, where.port, limit=2**20)
        head = (
            f"POST {READS_PATH}/{name} HTTP/1.0\r\nHost: {where.netloc}\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {self._address.token}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        try:
            writer.write(head.encode() + body)
            answer = await reader.read()
        finally:
            writer.close()
        headers, _, content = answer.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", headers)
        if not length or len(content) != int(length[1]):
            raise ConnectionError("the answer is not complete")
        return int(headers.split(b" ", 2)[1]), content


def _parse_answer(status: int, body: bytes, answer: type[T]) -> T | None:
    if status == HTTPStatus.OK:
        return answer.model_validate_json(body)
    problem = json.loads(body)
    category = str(problem.get("type", "")).removeprefix(PROBLEM_PREFIX)
    if category not in _CATEGORIES:
        return None
    raise Refused(Category(category), str(problem.get("detail", "")), str(problem.get("hint", "")))
