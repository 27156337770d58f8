"""The policy, quotas and identities files: read when a worker starts, and again whenever they change."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from temporalio.client import Client

from activities.access import Authorizer
from activities.oidc import OidcVerifier, RecordAttempt
from activities.proofs import ProgramSigningInterceptor, ProofVerifier
from client.documents import load_document
from client.message_signer import load_signer
from domain.access import AccessPolicy
from domain.errors import Category, Refused
from domain.identities import Identities
from domain.kinds import InternalProgram
from domain.quotafile import Quotas
from workers.settings import WorkerSettings

T = TypeVar("T")

WORKER_KEY_HINT = (
    "make one: starter key new workers; put its key into RATCHET_IDENTITIES under `issuers`, not `subjects`, with "
    f"vouches_for: [{', '.join(InternalProgram)}]; then set RATCHET_KEY_FILE and RATCHET_SUBJECT=workers"
)

_log = logging.getLogger("ratchet.access")


def load_policy(name: str) -> AccessPolicy:
    """Loads an access policy file; refuses a malformed one."""
    hint = "correct RATCHET_POLICY_FILE; there is an example in examples/policy.yaml"
    return load_document(AccessPolicy, Path(name), f"the policy file {name}", hint)


def load_quotas(name: str) -> Quotas:
    """Loads a quotas file; refuses a malformed one."""
    hint = "correct RATCHET_QUOTAS_FILE; there is an example in examples/quotas.yaml"
    return load_document(Quotas, Path(name), f"the quotas file {name}", hint)


def load_identities(name: str) -> Identities:
    """Loads an identities file; refuses a malformed one."""
    hint = "correct RATCHET_IDENTITIES; `starter key new NAME` prints lines for it"
    return load_document(Identities, Path(name), f"the identities file {name}", hint)


class WatchedFile(Generic[T]):
    """What a file says now. A file that has become wrong is logged, and what it said before stays in force."""

    def __init__(self, name: str, load: Callable[[str], T]) -> None:
        self._name = name
        self._load = load
        self._version = self._read_version()
        self._content = load(name)  # a wrong file keeps the worker from starting

    def __call__(self) -> T:
        """Returns the content, read again if the file has changed."""
        if (version := self._read_version()) != self._version:
            self._version = version
            try:
                self._content = self._load(self._name)
                _log.warning("%s has changed, and is in force", self._name)
            except Refused as refused:
                _log.error("%s; what it said before stays in force", refused.message)
        return self._content

    def _read_version(self) -> tuple[int, int, int] | None:
        try:
            found = Path(self._name).stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino, found.st_size


def make_authorizer(settings: WorkerSettings, namespace: str) -> Authorizer:
    """Returns the authorizer that these settings describe."""
    policy = WatchedFile(settings.policy_file, load_policy) if settings.policy_file else None
    read_policy: Callable[[], AccessPolicy | None] = policy or (lambda: None)
    if not settings.identities:
        return Authorizer(read_policy)
    verifier = ProofVerifier(WatchedFile(settings.identities, load_identities), namespace)
    return Authorizer(read_policy, verifier, wants_tokens=bool(settings.key_file))


def check_worker_key(settings: WorkerSettings, namespace: str) -> None:
    """Refuses identities without a worker's key: whoever may write to the namespace could speak for our programs.

    Temporal says whose child a workflow is, and not that its parent is ours; only a token of our key does.
    """
    if not settings.identities:
        return
    signer = load_signer(settings, namespace)
    if signer is None:
        raise Refused(
            Category.INVALID, "names are to be proven, and this worker has no key of its own", WORKER_KEY_HINT
        )
    verifier = ProofVerifier(lambda: load_identities(settings.identities), namespace)
    if not verifier.is_own_call("", signer.sign_call("")):
        why = f"no issuer in {settings.identities} that vouches for our programs has the key {settings.key_file}"
        raise Refused(Category.INVALID, why, WORKER_KEY_HINT)


def make_oidc_verifier(settings: WorkerSettings, record: RecordAttempt | None = None) -> OidcVerifier | None:
    """Returns the verifier of OIDC tokens; None without an identities file."""
    return OidcVerifier(WatchedFile(settings.identities, load_identities), record) if settings.identities else None


def make_quotas(settings: WorkerSettings) -> Callable[[], Quotas | None]:
    """Returns what reads the quotas that are in force."""
    return WatchedFile(settings.quotas_file, load_quotas) if settings.quotas_file else lambda: None


def with_program_signing(client: Client, settings: WorkerSettings) -> Client:
    """Returns the client, which signs what our programs start, if this worker has a key."""
    signer = load_signer(settings, client.namespace)
    if signer is None:
        return client
    config = client.config()
    config["interceptors"] = [*config["interceptors"], ProgramSigningInterceptor(signer)]
    return Client(**config)
