"""A codec endpoint that decrypts payloads for the Web UI. It listens on loopback only.

Anybody with a browser on this machine can read payloads through it: run it on a machine of one person.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from google.protobuf.json_format import MessageToJson, Parse, ParseError
from temporalio.api.common.v1 import Payloads

from client.payloads import EncryptionCodec, UnreadablePayload
from domain.errors import Category, Refused

LOOPBACK = "127.0.0.1"
MAX_BODY_BYTES = 8 * 1024 * 1024


class CodecServer(ThreadingHTTPServer):
    """The HTTP server: one thread for each request. `origins` are the pages that may call it from a browser."""

    daemon_threads = True  # an idle client does not keep the process from exiting

    def __init__(self, port: int, codec: EncryptionCodec, origins: Sequence[str]) -> None:
        self.codec = codec
        self.origins = [origin.rstrip("/") for origin in origins]
        try:
            super().__init__((LOOPBACK, port), _CodecHandler)
        except OSError as error:
            why = f"nothing can be served on port {port}: {error.strerror}"
            raise Refused(Category.INVALID, why, "choose another one with --port") from error

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.server_port}"


def _content_length(header: str | None) -> int | None:
    """Returns the Content-Length; None if it is not a natural number. Reading a negative length would never end."""
    if not header:
        return 0
    return int(header) if header.isascii() and header.isdigit() and len(header) < 20 else None


def _rejection_status(found_url: bool, length: int | None) -> HTTPStatus:
    if not found_url:
        return HTTPStatus.NOT_FOUND
    return HTTPStatus.BAD_REQUEST if length is None else HTTPStatus.REQUEST_ENTITY_TOO_LARGE


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
        length = _content_length(self.headers.get("content-length"))
        turn = {"/decode": self.server.codec.decode, "/encode": self.server.codec.encode}.get(self.path)
        if turn is None or length is None or length > MAX_BODY_BYTES:
            self._send_response(_rejection_status(turn is not None, length))
            return
        try:
            asked = Parse(self.rfile.read(length), Payloads())
            turned = asyncio.run(turn(asked.payloads))
        except (ParseError, UnicodeDecodeError, UnreadablePayload) as error:
            self._send_response(HTTPStatus.BAD_REQUEST, str(error).encode())
            return
        self._send_response(HTTPStatus.OK, MessageToJson(Payloads(payloads=turned)).encode())

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
