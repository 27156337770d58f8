"""OIDC: an issuer's token proves a name; every way to forge one is refused."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from activities import keysets
from activities.keysets import KeySets
from activities.oidc import OidcVerifier
from domain.errors import Category, Refused, Unavailable
from domain.identities import Identities, Login
from tests.issuer import AUDIENCE, ISSUER, NAME, STRANGER, URL, Issuer, KeyServer, altered, identities
from tests.test_cli.conftest import cli as cli
from workers.access import load_identities


@pytest.fixture
def key_file(tmp_path: Path) -> str:
    file = tmp_path / "keys.json"
    file.write_text(json.dumps(ISSUER.key_set()))
    file.chmod(0o644)
    return str(file)


@pytest.fixture
def known(key_file: str) -> Identities:
    return identities(key_file)


@pytest.fixture
def verifier(known: Identities) -> OidcVerifier:
    return OidcVerifier(lambda: known)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
async def test_a_token_of_a_known_issuer_proves_its_name_and_the_groups_that_count(
    verifier: OidcVerifier, algorithm: str
) -> None:
    before = time.time()
    token = ISSUER.token(alg=algorithm, aud=["other", AUDIENCE], groups=["team-a", "admins", 7])
    proven = await verifier.verify(token)
    assert (proven.name, proven.login) == (NAME, Login(issuer="corp", groups=["team-a"]))
    assert before - 1 < proven.expires - 600 < time.time() + 1


NOW = time.time()
ATTACKS: dict[str, tuple[Callable[[], str], str]] = {
    "no algorithm": (ISSUER.unsigned, "its algorithm 'none' is not one of RS256, ES256"),
    "the public key as a secret": (ISSUER.signed_with_public_key, "its algorithm 'HS256' is not one of"),
    "an algorithm that is not listed": (lambda: ISSUER.token(alg="RS512"), "its algorithm 'RS512' is not one of"),
    "another's key with the same ID": (STRANGER.token, "altered, or signed with another key"),
    "an unknown key": (lambda: ISSUER.token(kid="rsa-2"), "a key that its issuer does not have"),
    "a key of another type": (lambda: ISSUER.token(kid="ec-1"), "altered, or signed|does not have"),
    "another issuer": (lambda: Issuer("https://evil.example.com").token(), "is not known here"),
    "almost the issuer": (lambda: ISSUER.token(iss=f"{URL}/"), "is not known here"),
    "no issuer": (lambda: ISSUER.token(iss=None), "is not known here"),
    "another audience": (lambda: ISSUER.token(aud="billing"), "for another audience"),
    "no audience": (lambda: ISSUER.token(aud=None), "wrong claims: aud"),
    "part of the audience": (lambda: ISSUER.token(aud=["ratchet-test"]), "for another audience"),
    "expired": (lambda: ISSUER.token(exp=NOW - 60), "it has expired"),
    "no expiry": (lambda: ISSUER.token(exp=None), "wrong claims: exp"),
    "an expiry that is no number": (lambda: ISSUER.token(exp="9999999999"), "wrong claims: exp"),
    "an endless expiry": (lambda: ISSUER.token(exp=float("inf")), "wrong claims|altered"),
    "not good yet": (lambda: ISSUER.token(nbf=NOW + 86_400), "not good yet"),
    "from the future": (lambda: ISSUER.token(iat=NOW + 86_400), "not good yet"),
    "claims changed": (lambda: altered(ISSUER.token(), sub="root@example.com"), "altered"),
    "a name of others": (lambda: ISSUER.token(sub="eve"), "does not vouch for 'eve'"),
    "no name": (lambda: ISSUER.token(sub=None), "its claim sub is no name"),
    "a list of names": (lambda: ISSUER.token(sub=[NAME]), "its claim sub is no name"),
    "control characters": (lambda: ISSUER.token(sub="\x1b[2J@example.com"), "its claim sub is no name"),
    "an object's path": (lambda: ISSUER.token(sub="project:p:lease:x@example.com"), "cannot be the name"),
    "no signature": (lambda: ISSUER.token().rpartition(".")[0], "not a signed token"),
    "junk": (lambda: "a.b.c", "is not known here"),
    "too long": (lambda: ISSUER.token(more="x" * 20_000), "not a signed token"),
    "too many groups": (lambda: ISSUER.token(groups=[f"team-{n:090}" for n in range(12)]), "too many groups"),
}


@pytest.mark.parametrize("attack", ATTACKS)
async def test_every_forged_token_is_refused(verifier: OidcVerifier, attack: str) -> None:
    make, words = ATTACKS[attack]
    with pytest.raises(Refused, match=words) as refused:
        await verifier.verify(make())
    assert refused.value.category is Category.FORBIDDEN
    await verifier.verify(ISSUER.token())


async def test_clocks_may_differ_by_half_a_minute(verifier: OidcVerifier) -> None:
    now = time.time()
    await verifier.verify(ISSUER.token(exp=now - 20), now)
    await verifier.verify(ISSUER.token(nbf=now + 20, iat=now + 20), now)


@pytest.mark.parametrize("name", ["clock", "recycle bin", "self-healing"])
async def test_no_token_proves_a_program_of_ours(key_file: str, name: str) -> None:
    everybody = identities(key_file, vouches_for=["*"])
    with pytest.raises(Refused, match="cannot be the name of a subject"):
        await OidcVerifier(lambda: everybody).verify(ISSUER.token(sub=name))


async def test_an_address_counts_only_if_its_issuer_has_verified_it(key_file: str) -> None:
    by_mail = OidcVerifier(lambda: identities(key_file, name_claim="email"))
    assert (await by_mail.verify(ISSUER.token(sub="7", email=NAME, email_verified=True))).name == NAME
    for verified in (None, False, "true"):
        with pytest.raises(Refused, match="has not verified the address"):
            await by_mail.verify(ISSUER.token(sub="7", email=NAME, email_verified=verified))


async def test_a_key_set_is_fetched_once_and_again_for_a_new_key_but_not_for_every_forged_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keysets, "RETRY_SECONDS", 3600.0)
    with KeyServer(json.dumps(ISSUER.key_set()).encode()).serve() as server:
        verifier = OidcVerifier(lambda: identities(server.url))
        await asyncio.gather(*(verifier.verify(ISSUER.token()) for _ in range(20)))
        assert len(server.fetches) == 1
        for number in range(20):
            with pytest.raises(Refused, match="does not have"):
                await verifier.verify(ISSUER.token(kid=f"forged-{number}"))
        assert len(server.fetches) == 1
        rolled = Issuer()
        rolled.rsa = rolled.rsa.__class__.generate_key(2048, {"kid": "rsa-2"})
        server.body = json.dumps(rolled.key_set()).encode()
        monkeypatch.setattr(keysets, "RETRY_SECONDS", 0.0)
        assert (await verifier.verify(rolled.token())).name == NAME
        assert len(server.fetches) == 2
        with pytest.raises(Refused, match=r"does not have|altered"):  # what the issuer took back
            await verifier.verify(ISSUER.token())


async def test_keys_outlive_a_short_outage_of_their_issuer_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    with KeyServer(json.dumps(ISSUER.key_set()).encode()).serve() as server:
        verifier = OidcVerifier(lambda: identities(server.url))
        await verifier.verify(ISSUER.token())
        server.status = 500
        monkeypatch.setattr(keysets, "RETRY_SECONDS", 0.0)
        monkeypatch.setattr(keysets, "REFRESH_SECONDS", -1.0)
        await verifier.verify(ISSUER.token())
        assert len(server.fetches) == 2
        monkeypatch.setattr(keysets, "STALE_SECONDS", -1.0)
        with pytest.raises(Unavailable, match="cannot be fetched"):
            await verifier.verify(ISSUER.token())


BAD_ANSWERS: dict[str, tuple[int, str, bytes]] = {
    "a redirect": (302, "elsewhere", b""),
    "an error": (404, "", b"{}"),
    "too much": (200, "", b" " * (keysets.MAX_KEY_SET + 1)),
    "no JSON": (200, "", b"<html>"),
    "no keys": (200, "", b'{"keys": 7}'),
    "deep": (200, "", b"[" * 100_000),
}


@pytest.mark.parametrize("case", BAD_ANSWERS)
async def test_a_bad_answer_is_no_key_set(case: str) -> None:
    status, location, body = BAD_ANSWERS[case]
    with KeyServer(json.dumps(ISSUER.key_set()).encode()).serve() as other, KeyServer(body).serve() as server:
        server.status, server.location = status, other.url if location else ""
        with pytest.raises(Unavailable, match="cannot be fetched"):
            await KeySets().find_key(server.url, "rsa-1")
        assert other.fetches == []


def test_secrets_weak_keys_and_keys_for_encryption_are_left_out() -> None:
    weak = {"kty": "RSA", "n": "AQAB" * 40, "e": "AQAB", "kid": "weak"}
    secret = {"kty": "oct", "k": "c2VjcmV0", "kid": "secret"}
    rows = [*ISSUER.key_set()["keys"], weak, secret, {"kty": "new", "kid": "new"}, 7]
    rows.append({**ISSUER.key_set()["keys"][0], "use": "enc", "kid": "enc"})
    assert set(keysets.parse_key_set(json.dumps({"keys": rows}).encode())) == {"rsa-1", "ec-1"}


async def test_a_key_file_is_read_again_when_it_changes_and_refused_if_others_can_change_it(key_file: str) -> None:
    sets = KeySets()
    assert await sets.find_key(key_file, "rsa-1")
    Path(key_file).write_text(json.dumps({"keys": []}))
    assert await sets.find_key(key_file, "rsa-1") is None
    Path(key_file).write_text(json.dumps(ISSUER.key_set()))
    Path(key_file).chmod(0o666)
    with pytest.raises(Unavailable, match="can be changed by others"):
        await sets.find_key(key_file, "rsa-1")


@pytest.mark.parametrize("where", ["http://id.example.com/keys", "keys.json", "file:///etc/keys", "https:///keys"])
def test_keys_come_over_https_or_from_a_file(where: str) -> None:
    with pytest.raises(ValidationError, match="key_set"):
        identities(where)


def test_the_identities_file_takes_issuers_and_no_weak_algorithms(tmp_path: Path, known: Identities) -> None:
    file = tmp_path / "identities.yaml"
    file.write_text(known.model_dump_json())
    assert load_identities(str(file)).oidc["corp"].issuer == URL
    wrongs: list[dict[str, object]] = [
        {"algorithms": ["HS256"]},
        {"algorithms": ["none"]},
        {"vouches_for": []},
        {"issuer": "corp"},
    ]
    for wrong in wrongs:
        with pytest.raises(ValidationError):
            identities("/keys.json", **wrong)
