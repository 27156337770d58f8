"""What a proof costs a request: signing and verifying, beside a request without one. Run: python -m bench.proofs"""

from __future__ import annotations

import time
from collections.abc import Callable

from activities.access import claimed_sender
from activities.proofs import ProofSigner, ProofVerifier, generate_key_pair
from domain.exposure import OWN_ACTION
from domain.identities import Identities
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
    known = Identities.model_validate({"subjects": {"ann": {"keys": [public]}}})
    signer, verifier = ProofSigner(pem, "ann", "default"), ProofVerifier(lambda: known, "default")
    spec = {"subGroups": [{"name": f"g{n}", "subGroupSize": 5, "csp": "aws", "region": "eu"} for n in range(20)]}
    request = Request(path="ns:default:mci:web", action="create", spec=spec, request_id="q1")
    signed = signer.sign(request, OWN_ACTION)
    rows = {
        "claimed": measure_median_ms(lambda: claimed_sender(request, OWN_ACTION, None)),
        "sign": measure_median_ms(lambda: signer.sign(request, OWN_ACTION)),
        "verify": measure_median_ms(lambda: verifier(signed, OWN_ACTION, None)),
    }
    for step, cost in rows.items():
        print(f"{step:<8} {cost:7.3f} ms")
    whole = rows["sign"] + rows["verify"]
    print(f"proof    {whole:7.3f} ms, {whole / LIMIT_MS:.2f} of the limit of {LIMIT_MS:g} ms per request")


if __name__ == "__main__":
    main()
