"""What proofs and sealed payloads cost a request: signing and verifying, by a key or by the session of a login, and
encrypting and decrypting what goes through Temporal. Run: python3 run.py bench proofs"""

from __future__ import annotations

import asyncio
import base64
import os
import time
from collections.abc import Callable

from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import WorkflowSerializationContext

from activities.access import claimed_sender
from activities.proofs import ProofSigner, ProofVerifier, generate_key_pair
from client.encryption import EncryptionCodec, EncryptionKeys
from domain.exposure import OWN_ACTION
from domain.identities import Identities, Login
from domain.model import Request

ROUNDS = 500
LIMIT_MS = 1.0


def measure_median_ms(work: Callable[[], object]) -> float:
    """Returns the median time of one call, in milliseconds of CPU."""
    times = []
    for _ in range(ROUNDS):
        began = time.process_time_ns()
        work()
        times.append(time.process_time_ns() - began)
    return sorted(times)[ROUNDS // 2] / 1e6


def main() -> None:
    """Prints one row per step, and the ratio of the whole to the limit of one millisecond."""
    pem, public = generate_key_pair()
    worker_pem, worker_key = generate_key_pair()
    known = Identities.model_validate(
        {
            "subjects": {"ann": {"keys": [public]}},
            "issuers": {"workers": {"keys": [worker_key], "vouches_for": ["*@example.com"]}},
            "oidc": {
                "corp": {
                    **{"issuer": "https://id.example.com", "audience": "ratchet", "key_set": "/keys.json"},
                    "vouches_for": ["*@example.com"],
                }
            },
        }
    )
    signer, verifier = ProofSigner(pem, "ann", "default"), ProofVerifier(lambda: known, "default")
    spec = {"subGroups": [{"name": f"g{n}", "subGroupSize": 5, "csp": "aws", "region": "eu"} for n in range(20)]}
    request = Request(path="ns:default:mci:web", action="create", spec=spec, request_id="q1")
    signed = signer.sign(request, OWN_ACTION)
    session = _make_session(worker_pem, "ann@example.com")
    in_session = session.sign(request, OWN_ACTION)
    rows = {
        "claimed": measure_median_ms(lambda: claimed_sender(request, OWN_ACTION, None)),
        "sign": measure_median_ms(lambda: signer.sign(request, OWN_ACTION)),
        "verify": measure_median_ms(lambda: verifier(signed, OWN_ACTION, None)),
        "sign in a session": measure_median_ms(lambda: session.sign(request, OWN_ACTION)),
        "verify a session": measure_median_ms(lambda: verifier(in_session, OWN_ACTION, None)),
        **_measure_sealing(in_session),
    }
    for step, cost in rows.items():
        print(f"{step:<20} {cost:7.3f} ms")
    sums: dict[str, tuple[str, ...]] = {
        "proof by a key": ("sign", "verify"),
        "proof by a session": ("sign in a session", "verify a session"),
    }
    sums["session, sealed"] = (*sums["proof by a session"], "seal", "unseal")
    for what, steps in sums.items():
        whole = sum(rows[step] for step in steps)
        print(f"{what:<20} {whole:7.3f} ms, {whole / LIMIT_MS:.2f} of the limit of {LIMIT_MS:g} ms per request")


def _make_session(issuer_pem: bytes, name: str) -> ProofSigner:
    """Returns the signer of somebody who has logged in: a worker has certified its key."""
    pem, public = generate_key_pair()
    worker = ProofSigner(issuer_pem, "workers", "default")
    certificate = worker.certify(name, Login(issuer="corp"), public, time.time() + 3600)
    return ProofSigner(pem, name, "default", certificate=certificate)


def _measure_sealing(request: Request) -> dict[str, float]:
    """Measures the payloads of one request: its input and its update at the client, and both again at the worker."""
    keys = EncryptionKeys(active="a", keys={"a": base64.b64encode(os.urandom(32))})
    codec = EncryptionCodec(keys).with_context(WorkflowSerializationContext("default", request.path))
    plain = pydantic_data_converter.payload_converter.to_payloads([request, request])
    loop = asyncio.new_event_loop()
    sealed = loop.run_until_complete(codec.encode(plain))
    costs = {
        "seal": measure_median_ms(lambda: loop.run_until_complete(codec.encode(plain))),
        "unseal": measure_median_ms(lambda: loop.run_until_complete(codec.decode(sealed))),
    }
    loop.close()
    return costs


if __name__ == "__main__":
    main()
