"""`starter codec`: decrypts and encrypts payloads for the Web UI and the `temporal` CLI, for who has the keys."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from domain.errors import Category, Refused
from starter import terminal
from starter.errors import ExitCode
from starter.session import load_settings

CodecPort = Annotated[int, Parameter(help="Where, on 127.0.0.1.")]
Origin = Annotated[
    str, Parameter(help="The Web UI's origin, as in the browser's address line; the known one by default.")
]


async def codec(*, port: CodecPort = 8234, origin: Origin = "") -> ExitCode:
    """Decrypt and encrypt payloads for the Web UI until Ctrl-C; it needs RATCHET_KEYS_FILE. On this machine only.

    The printed address has a token: whoever knows it reads what the keys protect. RATCHET_CODEC_TOKEN_FILE names a file
    with a token that stays; without it each start makes a new one.

    Example: starter codec --origin http://127.0.0.1:8233
    """
    from client import encryption
    from client.codec import CodecServer, load_codec_token, serve_in_threads
    from client.connection import find_temporal_options
    from client.homefiles import read_embedded_options
    from client.stopsignals import make_stop_event

    settings = load_settings()
    if not settings.keys_file:
        raise Refused(Category.INVALID, "there are no keys to decrypt with", "set RATCHET_KEYS_FILE")
    known = origin or settings.ui_url or str(read_embedded_options(settings.home).get("ui", ""))
    if not known:
        raise Refused(Category.INVALID, "it is not known where the Web UI is", "say it with --origin or RATCHET_UI_URL")
    namespace = str(find_temporal_options(settings.home).get("namespace") or "default")
    opener = encryption.EncryptionCodec(encryption.load_keys(settings.keys_file), namespace)
    server = CodecServer(port, opener, [known], load_codec_token(settings.codec_token_file))
    with serve_in_threads(server):
        terminal.print_narration(f"decrypting for {known} at {server.url}/{server.token}", "bold green")
        terminal.print_narration("  in the Web UI: the glasses at the top right, *Codec Server*, this address")
        terminal.print_narration("  for one workflow's signals: this address, then /workflow/ and the workflow's ID")
        terminal.print_narration("  stop           Ctrl-C")
        await make_stop_event().wait()
    return ExitCode.DONE
