"""A small web service for the demo: answers with its name and version, and with what the services behind it say.

It gets its port as PORT, what it is as NAME and VERSION, and whom to ask as BEHIND (ports, with commas between them).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        told: dict[str, object] = {"name": os.environ["NAME"], "version": os.environ["VERSION"]}
        if self.path != "/health":
            behind = filter(None, os.environ.get("BEHIND", "").split(","))
            told["behind"] = [ask(port) for port in behind]
        body = json.dumps(told).encode() + b"\n"
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        if self.path != "/health":
            sys.stdout.write(f"{self.command} {self.path}\n")
            sys.stdout.flush()


def ask(port: str) -> object:
    """What another service says."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60) as answer:
        return json.load(answer)


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler)
    server.daemon_threads = False  # what was begun is finished
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    sys.stdout.write(f"{os.environ['NAME']} {os.environ['VERSION']} listens\n")
    sys.stdout.flush()
    server.serve_forever()
    server.server_close()


if __name__ == "__main__":
    main()
