"""An OpenTelemetry collector that stores what it receives: OTLP over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class Seen:
    """A span as it was reported."""

    name: str
    trace: str
    id: str
    parent: str


class Collector(ThreadingHTTPServer):
    spans: list[Seen]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        asked = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["content-length"])))
        for resource in asked.resource_spans:
            for scope in resource.scope_spans:
                self.server.spans += [
                    Seen(span.name, span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex())
                    for span in scope.spans
                ]
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Silence."""


@contextmanager
def collecting() -> Iterator[Collector]:
    server = Collector(("127.0.0.1", 0), _Handler)
    server.spans = []
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
