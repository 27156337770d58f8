"""An OIDC issuer: its keys, the server of its key set, and tokens as they should be and as they should not."""

from __future__ import annotations

import base64
import hmac
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from joserfc import jws
from joserfc.jwk import ECKey, RSAKey

from activities.proofs import generate_key_pair
from domain.identities import Identities

URL = "https://id.example.com"
AUDIENCE = "ratchet"


class Issuer:
    """Signs tokens with an RSA key, and with an EC key."""

    def __init__(self, url: str = URL) -> None:
        self.url = url
        self.ec = ECKey.generate_key("P-256", {"kid": "ec-1"})

    @cached_property
    def rsa(self) -> RSAKey:
        """Made when it is first used: it takes long, and every process of a run loads this file."""
        return RSAKey.generate_key(2048, {"kid": "rsa-1"})

    def key_set(self) -> dict[str, Any]:
        return {"keys": [key.as_dict(private=False) for key in (self.rsa, self.ec)]}

    def claims(self, **other: object) -> dict[str, object]:
        now = time.time()
        usual = {"iss": self.url, "aud": AUDIENCE, "sub": "ann@example.com", "iat": now, "nbf": now, "exp": now + 600}
        return {name: value for name, value in (usual | other).items() if value is not None}

    def token(self, *, alg: str = "RS256", kid: str | None = None, **claims: object) -> str:
        """A token; claims that are None are left out."""
        key = self.ec if alg == "ES256" else self.rsa
        header = {"alg": alg, "kid": kid or str(key.kid), "typ": "JWT"}
        return jws.serialize_compact(header, json.dumps(self.claims(**claims)).encode(), key, algorithms=[alg])

    def signed_with_public_key(self) -> str:
        """The classic: HS256, and the issuer's public key as the shared secret."""
        signed = f"{encode({'alg': 'HS256', 'kid': 'rsa-1'})}.{encode(self.claims())}"
        tag = hmac.digest(self.rsa.as_pem(private=False), signed.encode(), "sha256")
        return f"{signed}.{base64.urlsafe_b64encode(tag).decode().rstrip('=')}"

    def unsigned(self) -> str:
        return f"{encode({'alg': 'none', 'kid': 'rsa-1'})}.{encode(self.claims())}."


def encode(part: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")


def altered(token: str, **claims: object) -> str:
    """The token with other claims under its old signature."""
    head, body, tail = token.split(".")
    said = json.loads(base64.urlsafe_b64decode(body + "=="))
    return f"{head}.{encode(said | claims)}.{tail}"


class KeyServer:
    """Serves a key set over HTTP, and counts who fetches it."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.status = 200
        self.location = ""
        self.fetches: list[str] = []
        self.url = ""

    @contextmanager
    def serve(self) -> Iterator[KeyServer]:
        server = ThreadingHTTPServer(("127.0.0.1", 0), self._make_handler())
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        self.url = f"http://127.0.0.1:{server.server_port}/keys"
        try:
            yield self
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    def _make_handler(outer) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.fetches.append(self.path)
                self.send_response(outer.status)
                if outer.location:
                    self.send_header("Location", outer.location)
                self.send_header("Content-Length", str(len(outer.body)))
                self.end_headers()
                self.wfile.write(outer.body)

            def log_message(self, *args: object) -> None:
                return

        return Handler


ISSUER, STRANGER = Issuer(), Issuer()
WORKER_PEM, WORKER_KEY = generate_key_pair()
GATE_PEM, GATE_KEY = generate_key_pair()
EVE_PEM, EVE_KEY = generate_key_pair()
NAME = "ann@example.com"


def identities(key_set: str, **other: object) -> Identities:
    """An identities file with one OIDC issuer, whose logins workers and a gateway vouch for."""
    entry = {
        "issuer": URL,
        "audience": AUDIENCE,
        "key_set": key_set,
        "vouches_for": ["*@example.com"],
        "groups": ["staff"],
        "token_groups": ["team-*"],
    }
    return Identities.model_validate(
        {
            "subjects": {"eve": {"keys": [EVE_KEY]}},
            "issuers": {
                "workers": {"keys": [WORKER_KEY], "vouches_for": ["clock", "self-healing", "*@example.com"]},
                "gate": {"keys": [GATE_KEY], "vouches_for": ["http-*", "*@example.com"], "groups": ["web"]},
            },
            "oidc": {"corp": entry | other},
        }
    )
