"""The way of `starter KIND status OBJECT` around the parser; around the models too, if the gateway of `up` answers.

It is the command that people and scripts run most. To load the parser and the models takes longer than all else. What
has other words is left to the parser, with its errors; what the gateway does not answer, to the reads of every command.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple, get_args

from client.gateway import STATUS_ROUTE, GatewayAddress, claimed_name, find_own_address, split_answer
from domain.errors import Refused
from domain.paths import expand_path
from starter.firstlines import SCOPE_OF_STATUS
from starter.output import Output, StatusPage, print_status_page

GATEWAY_SECONDS = 10


class StatusCommand(NamedTuple):
    """A plain status command: which object, and how to print it."""

    path: str
    output: Output


def parse_status_command(words: Sequence[str]) -> StatusCommand | None:
    """Returns the status command that these words are; None if they are none, or wrong."""
    match words:
        case [noun, "status", target]:
            wanted = "table"
        case [noun, "status", target, "-o" | "--output", wanted]:
            pass
        case _:
            return None
    output: Output | None = next((word for word in get_args(Output) if word == wanted), None)
    if output is None or noun not in SCOPE_OF_STATUS or target.startswith("-"):
        return None
    try:
        return StatusCommand(expand_path(target, SCOPE_OF_STATUS[noun]), output)
    except Refused:
        return None


def print_gateway_status(words: Sequence[str]) -> bool:
    """Prints the status that a plain command asks for, as the gateway of `up` has it; False if nothing is printed."""
    if not (command := parse_status_command(words)) or not (gateway := find_own_address(os.environ)):
        return False
    try:
        page = _fetch_status_page(gateway, command.path)
    except (OSError, ValueError, TypeError, KeyError):  # it is gone, of another version, or refuses
        return False
    with suppress(BrokenPipeError):  # the reader of our output closed the pipe
        print_status_page(page, command.output)
    return True


def _fetch_status_page(gateway: GatewayAddress, path: str) -> StatusPage:
    query = {"path": path, "requested_by": claimed_name(os.environ)}
    with socket.create_connection(gateway.host_and_port, GATEWAY_SECONDS) as connection:
        connection.sendall(gateway.compose_post(STATUS_ROUTE, json.dumps(query).encode()))
        status, content = split_answer(b"".join(iter(lambda: connection.recv(2**20), b"")))
    if status != 200:
        raise ConnectionError(f"the gateway answered {status}")
    return StatusPage.from_json_data(json.loads(content))
