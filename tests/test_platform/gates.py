"""Proxies in front of a Temporal server: TLS with client certificates, and API keys."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.cable import listening

PREFACE = 24  # bytes with which every HTTP/2 connection begins
SETTINGS, HEADERS, END_STREAM_AND_HEADERS = 4, 1, 5


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, in files."""

    cert: Path
    key: Path


class Authority:
    """Signs certificates."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.file = folder / f"{name}.pem"
        cert = self._signed(self._name, self._key, 365, authority=True)
        self.file.write_bytes(cert.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, days: int = 30) -> Pair:
        """A certificate that is good for so many days; with a negative number it has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        cert = self._signed(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key, days)
        pair = Pair(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        pair.cert.write_bytes(cert.public_bytes(serialization.Encoding.PEM))
        form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        pair.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, plain))
        return pair

    def _signed(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, days: int, authority: bool = False
    ) -> x509.Certificate:
        until = datetime.now(UTC) + timedelta(days=days)
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name)
        builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
        since = min(until, datetime.now(UTC)) - timedelta(days=2)
        builder = builder.not_valid_before(since).not_valid_after(until)
        builder = builder.add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        here = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))])
        return builder.add_extension(here, critical=False).sign(self._key, hashes.SHA256())


def context(server: Pair, clients: Path | None = None) -> ssl.SSLContext:
    """How the door speaks TLS; with an authority, only for clients that it signed."""
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    found.load_cert_chain(server.cert, server.key)
    found.set_alpn_protocols(["h2"])
    if clients:
        found.load_verify_locations(clients)
        found.verify_mode = ssl.CERT_REQUIRED
    return found


@asynccontextmanager
async def tls(address: str, how: ssl.SSLContext) -> AsyncIterator[str]:
    """A door that speaks TLS and leads to a server that does not."""
    host, _, port = address.partition(":")

    async def let_in(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner, outer = await asyncio.open_connection(host, int(port))
        await asyncio.gather(_pour(reader, outer), _pour(inner, writer), return_exceptions=True)

    async with listening(let_in, how) as found:
        yield found


@asynccontextmanager
async def turning_away(how: ssl.SSLContext, status: int, message: str) -> AsyncIterator[str]:
    """A door that answers every call with the same refusal, as a server does to whom it does not know."""

    async def turn_away(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(PREFACE)
        writer.write(_frame(SETTINGS, 0, 0, b""))
        while head := await reader.read(9):
            head += await reader.readexactly(9 - len(head))
            await reader.readexactly(int.from_bytes(head[:3]))
            if head[3] == SETTINGS and not head[4]:
                writer.write(_frame(SETTINGS, 1, 0, b""))
            if head[3] == HEADERS:
                said = {"content-type": "application/grpc", "grpc-status": str(status), "grpc-message": message}
                block = b"\x88" + b"".join(_literal(name, value) for name, value in said.items())
                writer.write(_frame(HEADERS, END_STREAM_AND_HEADERS, int.from_bytes(head[5:9]), block))
            await writer.drain()

    async with listening(turn_away, how) as found:
        yield found


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return len(body).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + body


def _literal(name: str, value: str) -> bytes:
    """A header as HTTP/2 writes it when it writes it out."""
    return b"\x00" + b"".join(bytes((len(word),)) + word.encode() for word in (name, value))


async def _pour(source: asyncio.StreamReader, into: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(65_536):
            into.write(data)
            await into.drain()
    finally:
        into.close()
