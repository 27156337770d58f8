"""A moto server behind a wrapper that adds what moto lacks: the ways in which the real EC2 is difficult.

moto ignores client tokens, starts terminated VMs, deletes networks with VMs in them, changes states at once and never
fails. Here client tokens count, impossible orders are refused, states take `settle_seconds`, reads may be `lag_seconds`
behind, and faults strike by the same rules as in the simulated clouds.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from domain.faults import Fault, FaultKind
from tests.faulty.calls import Answer, Call, Environ, Respond, read_call, refusal

ACCOUNT = "123456789012"

# fmt: off
VERBS = {
    "RunInstances":       "create",
    "StopInstances":      "suspend",
    "StartInstances":     "resume",
    "RebootInstances":    "reboot",
    "TerminateInstances": "terminate",
    "DescribeInstances":  "describe",
    "DescribeImages":     "validate",
    "DescribeAvailabilityZones":     "validate",
    "DescribeInstanceTypeOfferings": "validate",
}
MAKES = ("CreateVpc", "CreateSubnet", "CreateInternetGateway", "CreateSecurityGroup", "ImportKeyPair")
REMOVES = ("DeleteVpc", "DeleteSubnet", "DeleteInternetGateway", "DeleteSecurityGroup", "DeleteKeyPair")
MOST_RESULTS = {"DescribeRouteTables": 100}
NEWBORN = re.compile(rb"<(?:vpcId|subnetId|internetGatewayId|groupId)>([a-z]+-[0-9a-f]+)<")
POSSIBLE = {
    "StopInstances":      ("running", "stopping", "stopped"),
    "StartInstances":     ("stopped", "pending", "running"),
    "RebootInstances":    ("running",),
}
PASSING = {  # while the change takes its time
    "RunInstances":       ("pending", 0),
    "StartInstances":     ("pending", 0),
    "StopInstances":      ("stopping", 64),
    "TerminateInstances": ("shutting-down", 32),
}
# fmt: on


@dataclass
class FaultyEc2:
    """The wrapper, as a WSGI application."""

    moto: Callable[[Environ, Respond], Iterable[bytes]]
    backends: Any
    settle_seconds: float = 0.0
    lag_seconds: float = 0.0
    faults: list[Fault] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)
    said: str = ""  # something that every error of ours repeats, as EC2's do with parts of the request

    def __post_init__(self) -> None:
        self._lock = threading.RLock()  # moto's models bear no threads
        self._used: dict[str, tuple[dict[str, str], str, list[bytes], str]] = {}
        self._settling: list[tuple[float, Any, str, int]] = []
        self._born: dict[str, float] = {}
        self._no_hangs = threading.Event()

    def __call__(self, environ: Environ, respond: Respond) -> Iterable[bytes]:
        call = read_call(environ)
        self.calls[call.operation] += 1
        self.calls.update(f"{call.operation} {each}" for each in call.ids)
        lose = False
        for fault in self._struck(call):
            if fault.kind in (FaultKind.HANG, FaultKind.SLOW):
                self._no_hangs.wait(fault.seconds)
            elif fault.kind is FaultKind.LOSE_ANSWER:
                lose = True
                break
            else:
                return self._suffer(fault, call, environ, respond)
        answer = Answer()
        with self._lock:
            body = self._work(call, environ, answer)
        return self._lost(environ, respond) if lose else answer.send(respond, body)

    def add_fault(self, fault: Fault) -> None:
        """Add a fault rule after the others."""
        with self._lock:
            self.faults.append(fault)

    def clear(self) -> None:
        with self._lock:
            self.faults, self.settle_seconds, self.lag_seconds, self.said = [], 0.0, 0.0, ""
        self._no_hangs.clear()

    def end_hangs(self) -> None:
        """Let go of the calls that hang, and hold no other one until all is cleared."""
        self._no_hangs.set()

    def instances(self, owner: str) -> list[Any]:
        """Every instance of an owner, whatever its state, as moto has it."""
        with self._lock:
            self._settle()
            return [each for each in self._all() if _tags(each).get("ratchet:owner") == owner]

    def calls_for(self, operation: str, instance: str) -> int:
        return self.calls[f"{operation} {instance}"]

    def settle(self) -> None:
        """Complete every transition that is under way."""
        with self._lock:
            self._settling = [(0.0, *each[1:]) for each in self._settling]
            self._settle()

    def hide(self, instance: str, seconds: float) -> None:
        """Hide an instance from reads for a while."""
        with self._lock:
            self._born[instance], self.lag_seconds = time.monotonic(), seconds

    def end(self, instance: str, reason: str) -> None:
        """End an instance as EC2 itself would."""
        with self._lock:
            [found] = [each for each in self._all() if each.id == instance]
            self._settling = [other for other in self._settling if other[1] is not found]
            found.terminate()
            found.state_reason.message = reason

    def groups(self) -> list[Any]:
        """Every security group."""
        books = self.backends[ACCOUNT].values()
        return [group for book in books for groups in book.groups.values() for group in groups.values()]

    def shared(self, owner: str, tenant: str = "") -> Counter[str]:
        """Counts an owner's shared resources, or those of one tenant, by their kind."""
        with self._lock:
            books = self.backends[ACCOUNT].values()
            things = [
                *(vpc for book in books for vpc in book.vpcs.values()),
                *(net for book in books for zone in book.subnets.values() for net in zone.values()),
                *(gateway for book in books for gateway in book.internet_gateways.values()),
                *self.groups(),
                *(pair for book in books for pair in book.key_pairs.values()),
            ]
            tagged = [_tags(thing) for thing in things]
        mine = [tags for tags in tagged if tags.get("ratchet:owner") == owner]
        return Counter(tags["ratchet:shared"] for tags in mine if tenant in ("", tags["ratchet:tenant"]))

    def _work(self, call: Call, environ: Environ, answer: Answer) -> Iterable[bytes]:
        self._settle()
        if why := self._refusal(call):
            return refusal(answer, 400, *why)
        if call.operation == "RunInstances" and call.fields.get("ClientToken"):
            return self._idempotent(call, environ, answer)
        hidden = self._hide(call)
        body = list(self.moto(environ, answer))
        self._show(call, hidden)
        self._slow_down(call)
        if call.operation in MAKES and self.lag_seconds:
            for name in NEWBORN.findall(b"".join(body)):
                self._born.setdefault(name.decode(), time.monotonic())
        return body

    def _idempotent(self, call: Call, environ: Environ, answer: Answer) -> Iterable[bytes]:
        """A repeated token gives the same answer; with other parameters, or after the VM is gone, EC2's error."""
        token = f"{call.region} {call.fields['ClientToken']}"
        if token not in self._used:
            known = {each.id for each in self._all()}
            body = list(self.moto(environ, answer))
            made = [each for each in self._all() if each.id not in known]
            if answer.status.startswith("200"):
                self._used[token] = (call.fields, answer.status, body, made[0].id)
                self._born[made[0].id] = time.monotonic()
                self._slow_down(call, made)
            return body
        fields, answer.status, body, made_id = self._used[token]
        if fields != call.fields:
            return refusal(answer, 400, "IdempotentParameterMismatch", "the token was used with other parameters")
        if self._state(made_id) == "terminated":
            return refusal(answer, 400, "IdempotentInstanceTerminated", f"{made_id} has been terminated")
        return body

    def _refusal(self, call: Call) -> tuple[str, str] | None:
        """EC2's refusal of calls that moto would accept."""
        if int(call.fields.get("MaxResults", 0)) > MOST_RESULTS.get(call.operation, 1_000):
            return "InvalidParameterValue", "MaxResults is too large"
        if not call.operation.startswith("Describe"):
            for value in call.fields.values():
                if self._born.get(value, 0) > time.monotonic() - self.lag_seconds and value not in call.ids:
                    return "InvalidThing.NotFound", f"{value} does not exist yet"
        if call.operation in POSSIBLE:
            for each in self._named(call):
                if each._state.name not in POSSIBLE[call.operation]:
                    return "IncorrectInstanceState", f"The instance '{each.id}' is {each._state.name}."
        if call.operation in ("DeleteSubnet", "DeleteSecurityGroup"):
            wanted = call.fields.get("SubnetId") or call.fields.get("GroupId")
            for each in self._all():
                uses = {each.subnet_id, *(group.id for group in each.security_groups)}
                if wanted in uses and each._state.name != "terminated":
                    return "DependencyViolation", f"{wanted} has a dependent object {each.id}."
        if (
            call.operation == "CreateSecurityGroup"
            and call.fields["VpcId"] not in self.backends[ACCOUNT][call.region].vpcs
        ):
            return "InvalidVpcID.NotFound", f"The vpc ID '{call.fields['VpcId']}' does not exist"
        if call.operation == "DeleteVpc":
            groups = self.backends[ACCOUNT][call.region].groups.get(call.fields["VpcId"], {})
            if len(groups) > 1:  # one is the VPC's own
                return "DependencyViolation", "The vpc has a security group and cannot be deleted."
        return None

    def _slow_down(self, call: Call, changed: list[Any] | None = None) -> None:
        """Put changed instances back into their transitional state for a while."""
        if call.operation not in PASSING:
            return
        for each in changed or self._named(call):
            self._settling = [other for other in self._settling if other[1] is not each]  # that is over
            if self.settle_seconds:
                self._settling.append(
                    (time.monotonic() + self.settle_seconds, each, each._state.name, each._state.code)
                )
                each._state.name, each._state.code = PASSING[call.operation]

    def _settle(self) -> None:
        due = [each for each in self._settling if each[0] <= time.monotonic()]
        for _, instance, name, code in due:
            instance._state.name, instance._state.code = name, code
        self._settling = [each for each in self._settling if each not in due]

    def _hide(self, call: Call) -> list[tuple[Any, Any]]:
        """Remove from the state what a read must not see yet."""
        if call.operation != "DescribeInstances" or not self.lag_seconds:
            return []
        young = time.monotonic() - self.lag_seconds
        books = self.backends[ACCOUNT][call.region].reservations
        fresh = [
            (key, group)
            for key, group in books.items()
            if any(self._born.get(instance.id, 0) > young for instance in group.instances)
        ]
        for key, _ in fresh:
            del books[key]
        return fresh

    def _show(self, call: Call, hidden: list[tuple[Any, Any]]) -> None:
        self.backends[ACCOUNT][call.region].reservations.update(hidden)

    def _struck(self, call: Call) -> list[Fault]:
        """The fault rules that apply to this call, counted; none follows one that decides the call."""
        with self._lock:
            met: list[Fault] = []
            for rule in list(self.faults):
                if not any(rule.matches(verb, call.region, path) for verb, path in self._about(call)):
                    continue
                self._use(rule)
                met.append(rule)
                if rule.kind not in (FaultKind.HANG, FaultKind.SLOW):
                    break
            return met

    def _use(self, rule: Fault) -> None:
        if rule.times is not None:
            where = self.faults.index(rule)
            left = [rule.model_copy(update={"times": rule.times - 1})] if rule.times > 1 else []
            self.faults[where : where + 1] = left

    def _about(self, call: Call) -> list[tuple[str, str]]:
        """Verbs and paths that a call is about."""
        if call.operation in MAKES:
            return [("prepare", f"region:{call.region}:shared:{call.tags.get('ratchet:shared', '')}")]
        if call.operation in REMOVES:
            return [("release", f"region:{call.region}:shared:")]
        verb = VERBS.get(call.operation)
        if verb is None:
            return []
        if verb == "create":
            return [(verb, call.tags.get("ratchet:path", ""))]
        paths = [_tags(each).get("ratchet:path", "") for each in self._named(call)]
        return [(verb, path) for path in paths] or [(verb, "region:all")]

    def _suffer(self, fault: Fault, call: Call, environ: Environ, respond: Respond) -> Iterable[bytes]:
        message, answer = f"{fault.message or f'told to {fault.kind}'} {self.said}".strip(), Answer()
        match fault.kind:
            case FaultKind.THROTTLE:
                if fault.retry_after is not None:
                    answer.headers.append(("Retry-After", f"{fault.retry_after}"))
                return answer.send(respond, refusal(answer, 503, "RequestLimitExceeded", message))
            case FaultKind.UNAVAILABLE:
                return answer.send(respond, refusal(answer, 503, "Unavailable", message))
            case FaultKind.CAPACITY:
                return answer.send(respond, refusal(answer, 500, "InsufficientInstanceCapacity", message))
            case FaultKind.LIE:
                return answer.send(respond, [b"<TerminateInstancesResponse/>"])
            case FaultKind.UNKNOWN_STATUS:
                with self._lock:
                    return answer.send(respond, self._pretend(call, fault, environ, answer))
            case _:
                return answer.send(respond, refusal(answer, 400, "UnsupportedOperation", message))

    def _pretend(self, call: Call, fault: Fault, environ: Environ, answer: Answer) -> Iterable[bytes]:
        """Answer with a state that EC2 does not have."""
        some = [
            each for each in self._all() if fault.matches("describe", call.region, _tags(each).get("ratchet:path", ""))
        ]
        true = [(each, each._state.name) for each in some]
        for each in some:
            each._state.name = "hibernating"
        body = list(self.moto(environ, answer))
        for each, name in true:
            each._state.name = name
        return body

    def _lost(self, environ: Environ, respond: Respond) -> Iterable[bytes]:
        """Do the work, then drop the connection."""
        environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        return Answer().send(respond, [b""])

    def _state(self, instance: str) -> str:
        return next(str(each._state.name) for each in self._all() if each.id == instance)

    def _named(self, call: Call) -> list[Any]:
        ids = set(call.ids)
        if call.operation == "DescribeInstances":
            ids = {value for name, value in call.fields.items() if ".Value." in name}
        return [each for each in self._all() if each.id in ids] if ids else []

    def _all(self) -> list[Any]:
        books = [region.reservations for region in self.backends[ACCOUNT].values()]
        return [instance for book in books for group in book.values() for instance in group.instances]


def _tags(instance: Any) -> dict[str, str]:
    return {tag["key"]: tag["value"] for tag in instance.get_tags()}
