"""EC2's requests and responses as they go over HTTP."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

Environ = dict[str, Any]
Respond = Callable[..., Any]


@dataclass
class Call:
    """One request as it arrives."""

    operation: str
    region: str
    fields: dict[str, str]

    @property
    def ids(self) -> list[str]:
        return [value for name, value in self.fields.items() if name.startswith("InstanceId.")]

    @property
    def tags(self) -> dict[str, str]:
        """The tags that the first tag specification gives."""
        stem = "TagSpecification.1.Tag."
        keys = {name: value for name, value in self.fields.items() if name.startswith(stem) and name.endswith(".Key")}
        return {key: self.fields[name.removesuffix("Key") + "Value"] for name, key in keys.items()}


@dataclass
class Answer:
    """The status and headers of a response."""

    status: str = "200 OK"
    headers: list[tuple[str, str]] = field(default_factory=lambda: [("Content-Type", "text/xml")])

    def __call__(self, status: str, headers: list[tuple[str, str]], _error: Any = None) -> None:
        self.status, self.headers = status, headers

    def send(self, respond: Respond, body: Iterable[bytes]) -> Iterable[bytes]:
        whole = b"".join(body)
        headers = [(name, value) for name, value in self.headers if name.lower() != "content-length"]
        respond(self.status, [*headers, ("Content-Length", str(len(whole)))])
        return [whole]


def read_call(environ: Environ) -> Call:
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    environ["wsgi.input"] = io.BytesIO(body)
    fields = dict(parse_qsl(body.decode()))
    # Credential=KEY/20260101/eu-central-1/ec2/aws4_request
    scope = environ.get("HTTP_AUTHORIZATION", "///").split("Credential=")[-1].split("/")
    return Call(fields.get("Action", ""), scope[2] if len(scope) > 2 else "", fields)


def refusal(answer: Answer, status: int, code: str, message: str) -> Iterable[bytes]:
    answer.status = f"{status} Refused"
    told = f"<Code>{code}</Code><Message>{escape(message)}</Message>"
    return [f"<Response><Errors><Error>{told}</Error></Errors><RequestID>r</RequestID></Response>".encode()]
