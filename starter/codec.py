"""`starter codec`: decrypts payloads for the Web UI, for a person who has the keys."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from domain.errors import Category, Refused
from starter import terminal
from starter.errors import Exit
from starter.session import load_settings

CodecPort = Annotated[int, Parameter(help="Where, on 127.0.0.1.")]
Origin = Annotated[
    str, Parameter(help="The Web UI's origin, as in the browser's address line; the known one by default.")
]


async def codec(*, port: CodecPort = 8234, origin: Origin = "") -> Exit:
    """Decrypt payloads for the Web UI until Ctrl-C; it needs RATCHET_KEYS_FILE. On this machine only.

    Example: starter codec --origin http://127.0.0.1:8233
    """
    from client import payloads
    from client.codec import CodecServer, serving
    from client.connection import embedded
    from client.signals import stopped

    settings = load_settings()
    if not settings.keys_file:
        raise Refused(Category.INVALID, "there are no keys to decrypt with", "set RATCHET_KEYS_FILE")
    known = origin or settings.ui_url or str(embedded(settings.home).get("ui", ""))
    if not known:
        raise Refused(Category.INVALID, "it is not known where the Web UI is", "say it with --origin or RATCHET_UI_URL")
    server = CodecServer(port, payloads.Encryption(payloads.load(settings.keys_file)), [known])
    with serving(server):
        terminal.story(f"decrypting for {known} at {server.url}", "bold green")
        terminal.story("  in the Web UI: the glasses at the top right, *Codec Server*, this address")
        terminal.story("  stop           Ctrl-C")
        await stopped().wait()
    return Exit.DONE
