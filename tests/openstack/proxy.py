"""Between the SDK and OpenStack: faults by the same rules as in the simulated clouds, and calls carried out twice."""

from __future__ import annotations

import json
import socket
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from werkzeug.serving import WSGIRequestHandler, make_server

from domain.faults import Fault, FaultKind
from tests.faulty.calls import Answer, Environ, Respond
from tests.patience import PATIENCE

SHARED = {"networks": "vnet", "subnets": "vnet", "security-groups": "securityGroup", "os-keypairs": "sshKey"}
VERBS = {"os-stop": "suspend", "os-start": "resume", "reboot": "reboot"}
_PASSED_ON = ("X-Auth-Token", "Content-Type", "OpenStack-API-Version", "X-OpenStack-Nova-API-Version", "Accept")


@dataclass(frozen=True)
class Call:
    """One request as it arrives: /REGION/SERVICE/VERSION/COLLECTION/…"""

    method: str
    region: str
    service: str
    rest: str
    query: str
    body: bytes
    headers: dict[str, str]

    @property
    def words(self) -> list[str]:
        return self.rest.strip("/").split("/")[1:]

    @property
    def data(self) -> dict[str, Any]:
        return dict(json.loads(self.body)) if self.body else {}


@dataclass
class Proxy:
    """A WSGI application that passes calls on. `twice`: how many creations are carried out once more."""

    upstream: dict[str, str]  # service -> address
    faults: list[Fault] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)
    twice: int = 0
    said: str = ""  # something that every error of ours repeats

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._no_hangs = threading.Event()
        self._paths: dict[str, str] = {}  # server -> its path
        limits = httpx.Limits(max_connections=100, max_keepalive_connections=0)
        self._client = httpx.Client(timeout=PATIENCE, limits=limits, trust_env=False)

    def add_fault(self, fault: Fault) -> None:
        with self._lock:
            self.faults.append(fault)

    def clear(self) -> None:
        with self._lock:
            self.faults, self.twice, self.said = [], 0, ""
            self.calls.clear()
        self._no_hangs.clear()

    def end_hangs(self) -> None:
        """Let go of the calls that hang, and hold no other one until all is cleared."""
        self._no_hangs.set()

    def __call__(self, environ: Environ, respond: Respond) -> Iterable[bytes]:
        call = _read_call(environ)
        if call.method == "GET" and not call.words:
            return self._describe_version(environ, call, respond)
        verb, paths = self._about(call)
        with self._lock:
            self.calls[verb] += 1
        lose, pretend = False, None
        for fault in self._struck(call, verb, paths):
            if fault.kind in (FaultKind.HANG, FaultKind.SLOW):
                self._no_hangs.wait(fault.seconds)
            elif fault.kind is FaultKind.LOSE_ANSWER:
                lose = True
            elif fault.kind is FaultKind.UNKNOWN_STATUS:
                pretend = fault
            else:
                return self._suffer(fault, respond)
        try:
            answer = self._pass_on(call, verb)
        except httpx.HTTPError:
            lose = True  # OpenStack is away: whoever asked learns nothing
        if lose:
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            return Answer().send(respond, [b""])
        body = self._pretend(answer.content, pretend) if pretend else answer.content
        kept = [(name, value) for name, value in answer.headers.items() if name.lower() in ("content-type",)]
        return Answer(f"{answer.status_code} {answer.reason_phrase}", kept).send(respond, [body])

    @staticmethod
    def _describe_version(environ: Environ, call: Call, respond: Respond) -> Iterable[bytes]:
        """Tells the SDK that this is the address of a service; the services would tell their own."""
        here = f"http://{environ['HTTP_HOST']}/{call.region}/{call.service}/{call.rest.strip('/')}/"
        limits = {"min_version": "2.1", "version": "2.96"} if call.service == "compute" else {}
        links = [{"rel": "self", "href": here}]
        version = {"id": call.rest.strip("/"), "status": "CURRENT", "links": links, **limits}
        answer = Answer(headers=[("Content-Type", "application/json")])
        return answer.send(respond, [json.dumps({"version": version}).encode()])

    def _pass_on(self, call: Call, verb: str) -> httpx.Response:
        with self._lock:
            times = 2 if verb == "create" and self.twice > 0 else 1
            self.twice -= times - 1
        for _ in range(times):
            url = f"{self.upstream[call.service]}/{call.rest}{call.query and '?' + call.query}"
            answer = self._client.request(call.method, url, content=call.body, headers=call.headers)
        if verb == "create" and answer.is_success:
            self._paths[answer.json()["server"]["id"]] = self._created_path(call)
        return answer

    def _about(self, call: Call) -> tuple[str, list[str]]:
        """The verb, and the paths of the VMs, that a call is about."""
        words = call.words
        shared = [f"region:{call.region}:shared:{SHARED.get(words[0], '')}"] if words else []
        match call.method, words:
            case "POST", ["servers"]:
                return "create", [self._created_path(call)]
            case "POST", ["servers", server, "action"]:
                return VERBS.get(next(iter(call.data)), "action"), [self._paths.get(server, "")]
            case "DELETE", ["servers", server]:
                return "terminate", [self._paths.get(server, "")]
            case "GET", ["servers", *_]:
                return "describe", list(self._paths.values()) or ["region:all"]
            case "POST", [what] if what in SHARED:
                return "prepare", shared
            case "DELETE", [what, _] if what in SHARED:
                return "release", shared
            case "GET", ["flavors" | "images", *_]:
                return "validate", ["region:all"]
            case _:
                return "other", []

    @staticmethod
    def _created_path(call: Call) -> str:
        return str(call.data["server"].get("metadata", {}).get("ratchet:path", ""))

    def _struck(self, call: Call, verb: str, paths: Sequence[str]) -> list[Fault]:
        """The fault rules that apply to this call, counted; none follows one that decides the call."""
        with self._lock:
            met: list[Fault] = []
            for rule in list(self.faults):
                if not any(rule.matches(verb, call.region, path) for path in paths):
                    continue
                if rule.times is not None:
                    where = self.faults.index(rule)
                    left = [rule.model_copy(update={"times": rule.times - 1})] if rule.times > 1 else []
                    self.faults[where : where + 1] = left
                met.append(rule)
                if rule.kind not in (FaultKind.HANG, FaultKind.SLOW):
                    break
            return met

    def _suffer(self, fault: Fault, respond: Respond) -> Iterable[bytes]:
        message, answer = f"{fault.message or f'told to {fault.kind}'} {self.said}".strip(), Answer()
        answer.headers = [("Content-Type", "application/json")]
        status = {FaultKind.THROTTLE: 429, FaultKind.UNAVAILABLE: 503, FaultKind.CAPACITY: 403}.get(fault.kind, 400)
        if fault.kind is FaultKind.CAPACITY:
            message = f"Quota exceeded for instances: {message}"
        if fault.retry_after is not None:
            answer.headers.append(("Retry-After", f"{fault.retry_after}"))
        answer.status = f"{status} Refused"
        return answer.send(respond, [json.dumps({"refused": {"code": status, "message": message}}).encode()])

    @staticmethod
    def _pretend(body: bytes, fault: Fault) -> bytes:
        """Changes the status of servers into one that Nova does not have."""
        told = json.loads(body)
        for server in told.get("servers", []):
            if fault.matches("describe", "", server.get("metadata", {}).get("ratchet:path", "")):
                server["status"] = "HIBERNATING"
        return json.dumps(told).encode()


def _read_call(environ: Environ) -> Call:
    region, service, rest = environ["PATH_INFO"].lstrip("/").split("/", 2)
    headers = {
        name: environ[key]
        for name in _PASSED_ON
        if (key := "CONTENT_TYPE" if name == "Content-Type" else f"HTTP_{name.upper().replace('-', '_')}") in environ
    }
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    return Call(environ["REQUEST_METHOD"], region, service, rest, environ.get("QUERY_STRING", ""), body, headers)


@contextmanager
def serving(proxy: Proxy) -> Iterator[str]:
    """Serves the proxy in a thread. Yields its address."""
    server = make_server("127.0.0.1", 0, proxy, threaded=True, request_handler=_Silent)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Silent(WSGIRequestHandler):
    def log(self, *_: Any) -> None:
        """Log nothing."""
