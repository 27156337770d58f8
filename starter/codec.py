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
    from client.codec import CodecServer, serve_in_threads
    from client.connection import read_embedded_options
    from client.signals import stop_event

    settings = load_settings()
    if not settings.keys_file:
        raise Refused(Category.INVALID, "there are no keys to decrypt with", "set RATCHET_KEYS_FILE")
    known = origin or settings.ui_url or str(read_embedded_options(settings.home).get("ui", ""))
    if not known:
        raise Refused(Category.INVALID, "it is not known where the Web UI is", "say it with --origin or RATCHET_UI_URL")
    server = CodecServer(port, payloads.EncryptionCodec(payloads.load_keys(settings.keys_file)), [known])
    with serve_in_threads(server):
        terminal.print_story(f"decrypting for {known} at {server.url}", "bold green")
        terminal.print_story("  in the Web UI: the glasses at the top right, *Codec Server*, this address")
        terminal.print_story("  stop           Ctrl-C")
        await stop_event().wait()
    return Exit.DONE
