"""The policy file: read when a worker starts, and again whenever it changes."""

from __future__ import annotations

import logging
from pathlib import Path

from activities.access import Authorizer
from client.documents import UnreadableDocument, read_document
from domain.access import AccessPolicy
from domain.errors import Category, Refused
from domain.fields import refuse_invalid
from workers.settings import WorkerSettings

HINT = "correct RATCHET_POLICY_FILE; there is an example in examples/policy.yaml"
_log = logging.getLogger("ratchet.access")


def load_policy(name: str) -> AccessPolicy:
    """Loads an access policy file; refuses a malformed one."""
    try:
        with refuse_invalid(f"the policy file {name} is not valid", HINT):
            return AccessPolicy.model_validate(read_document(Path(name)) or {})
    except UnreadableDocument as error:
        raise Refused(Category.INVALID, f"the policy file {name} {error}", HINT) from error


class PolicyFile:
    """The current policy. A file that has become wrong is logged, and the last good policy stays in force."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._version = self._read_version()
        self._policy = load_policy(name)  # a wrong file keeps the worker from starting

    def __call__(self) -> AccessPolicy:
        """Returns the policy, read again if the file has changed."""
        if (version := self._read_version()) != self._version:
            self._version = version
            try:
                self._policy = load_policy(self._name)
                _log.warning("the policy file %s has changed: the new policy is in force", self._name)
            except Refused as refused:
                _log.error("%s; the last good policy stays in force", refused.message)
        return self._policy

    def _read_version(self) -> tuple[int, int, int] | None:
        try:
            found = Path(self._name).stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino, found.st_size


def make_authorizer(settings: WorkerSettings) -> Authorizer:
    """Returns the authorizer that these settings describe."""
    return Authorizer(PolicyFile(settings.policy_file)) if settings.policy_file else Authorizer()
