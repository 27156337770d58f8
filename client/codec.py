"""A codec endpoint that decrypts and encrypts payloads for the Web UI and the `temporal` CLI, on loopback only.

Whoever calls it needs its token, in the header `Authorization: Bearer TOKEN` or, as the Web UI sends none, as the first
part of the path: `/TOKEN/decode`. What is encrypted belongs to the workflow that the path names
(`/TOKEN/workflow/ID/encode`), or to any workflow of the namespace if the caller cannot say which.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote

from google.protobuf.json_format import MessageToJson, Parse, ParseError
from temporalio.api.common.v1 import Payload, Payloads

from client.encryption import OUTSIDE, WORKFLOW, EncryptionCodec, PayloadSeal, UnreadablePayload
from domain.errors import Category, Refused

LOOPBACK = "127.0.0.1"
MAX_BODY_BYTES = 8 * 1024 * 1024


class CodecServer(ThreadingHTTPServer):
    """The HTTP server: one thread for each request. `origins` are the pages that may call it from a browser."""

    daemon_threads = True  # an idle client does not keep the process from exiting

    def __init__(self, port: int, codec: EncryptionCodec, origins: Sequence[str], token: str) -> None:
        self.codec = codec
        self.token = token
        self.origins = [origin.rstrip("/") for origin in origins]
        try:
            super().__init__((LOOPBACK, port), _CodecHandler)
        except OSError as error:
            why = f"nothing can be served on port {port}: {error.strerror}"
            raise Refused(Category.INVALID, why, "choose another one with --port") from error

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.server_port}"

    def is_valid_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.token.encode())

    def encode_or_decode(self, words: Sequence[str], payloads: Sequence[Payload]) -> list[Payload] | None:
        """Carries out the call that the words of a path name; None if there is no such call."""
        match list(words):
            case ["decode"] | ["workflow", _, "decode"]:
                return [self.codec.decode_anywhere(payload) for payload in payloads]
            case ["encode"]:
                return self._encrypt_with_seal(PayloadSeal(self.codec.seal.namespace, OUTSIDE), payloads)
            case ["workflow", owner, "encode"] if owner:
                return self._encrypt_with_seal(PayloadSeal(self.codec.seal.namespace, WORKFLOW, owner), payloads)
        return None

    def _encrypt_with_seal(self, seal: PayloadSeal, payloads: Sequence[Payload]) -> list[Payload]:
        return asyncio.run(self.codec.with_seal(seal).encode(payloads))


def _content_length(header: str | None) -> int | None:
    """Returns the Content-Length; None if it is not a natural number. Reading a negative length would never end."""
    if not header:
        return 0
    return int(header) if header.isascii() and header.isdigit() and len(header) < 20 else None


class _CodecHandler(BaseHTTPRequestHandler):
    server: CodecServer
    timeout = 30  # for a client that sends less than its Content-Length

    def do_OPTIONS(self) -> None:
        """Answers a browser's preflight request."""
        if self._is_allowed_origin():
            self._send_response(HTTPStatus.NO_CONTENT)

    def do_POST(self) -> None:
        if not self._is_allowed_origin():
            return
        words = self._authorized_path_words()
        if words is None:
            self._send_response(HTTPStatus.UNAUTHORIZED, b"the token is missing or wrong: `starter codec` prints it")
            return
        length = _content_length(self.headers.get("content-length"))
        if length is None or length > MAX_BODY_BYTES:
            self._send_response(HTTPStatus.BAD_REQUEST if length is None else HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return
        try:
            asked = Parse(self.rfile.read(length), Payloads())
            turned = self.server.encode_or_decode(words, asked.payloads)
        except (ParseError, UnicodeDecodeError, UnreadablePayload) as error:
            self._send_response(HTTPStatus.BAD_REQUEST, str(error).encode("utf-8", "replace"))
            return
        if turned is None:
            self._send_response(HTTPStatus.NOT_FOUND)
            return
        self._send_response(HTTPStatus.OK, MessageToJson(Payloads(payloads=turned)).encode())

    def _authorized_path_words(self) -> list[str] | None:
        """Returns the words of the path without the token; None if neither header nor path has the right one."""
        words = [unquote(word) for word in self.path.removeprefix("/").split("/")]
        scheme, _, given = self.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.server.is_valid_token(given.strip()):
            return words[1:] if self.server.is_valid_token(words[0]) else words
        return words[1:] if self.server.is_valid_token(words[0]) else None

    def _is_allowed_origin(self) -> bool:
        """Checks Host and Origin: only pages of the Web UI may call, not another site in the same browser."""
        origin = self.headers.get("origin")
        by_name = self.headers.get("host") in {f"{name}:{self.server.server_port}" for name in (LOOPBACK, "localhost")}
        if by_name and (origin is None or origin in self.server.origins):
            return True
        self._send_response(HTTPStatus.FORBIDDEN)
        return False

    def _send_response(self, status: HTTPStatus, body: bytes = b"") -> None:
        self.send_response(status)
        if (origin := self.headers.get("origin")) in self.server.origins:
            self.send_header("access-control-allow-origin", str(origin))
            self.send_header("access-control-allow-methods", "POST, OPTIONS")
            self.send_header("access-control-allow-headers", "content-type, x-namespace, authorization")
        self.send_header("content-type", "application/json" if status is HTTPStatus.OK else "text/plain")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing: requests carry payloads."""


@contextmanager
def serve_in_threads(server: CodecServer) -> Iterator[None]:
    """Serves in threads for as long as the block lasts."""
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def load_codec_token(file: Path | None) -> str:
    """Returns the token in the file, or a new one; refuses a file that others may read, or a token that is short."""
    if file is None:
        return secrets.token_urlsafe(24)
    hint = f"make one: (umask 077; openssl rand -hex 24 > {file})"
    try:
        if file.stat().st_mode & 0o077:
            raise Refused(Category.INVALID, f"the token file {file} can be read by others", f"chmod 600 {file}")
        token = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(Category.INVALID, f"the token file {file} cannot be read", hint) from error
    if not re.fullmatch(r"[A-Za-z0-9_-]{24,200}", token):
        why = f"the token in {file} must be 24 to 200 letters, digits, dashes and underscores"
        raise Refused(Category.INVALID, why, hint)
    return token
