"""The key sets (JWKS) of OIDC issuers: read from files, or fetched with limits and kept for a while."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import urllib.error
import urllib.request
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from http.client import HTTPException
from pathlib import Path
from typing import Any

from domain.errors import Unavailable, format_one_line

with suppress(ModuleNotFoundError):  # the extra `encryption`
    from joserfc.errors import JoseError
    from joserfc.jwk import ECKey, Key, OKPKey, RSAKey

REFRESH_SECONDS = 300.0  # after which keys are fetched again
STALE_SECONDS = 3600.0  # for which keys are used while their issuer does not answer
RETRY_SECONDS = 10.0  # between two fetches, however many tokens name unknown keys
FETCH_SECONDS = 5.0
MAX_KEY_SET = 256 * 1024  # bytes
MAX_KEYS = 100
MIN_RSA_BITS = 2048
OTHERS_WRITE = 0o022
_log = logging.getLogger("ratchet.access")

Keys = dict[str, "Key"]  # by their IDs


@dataclass
class _FetchedKeys:
    keys: Keys
    at: float


class KeySets:
    """Finds keys by issuer and key ID. Whoever sends tokens cannot make it fetch more often."""

    def __init__(self) -> None:
        self._fetched: dict[str, _FetchedKeys] = {}
        self._tried: dict[str, float] = {}
        self._files: dict[str, tuple[tuple[int, int, int], Keys]] = {}
        self._fetching: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def find_key(self, where: str, public_key_id: str) -> Key | None:
        """Returns the key of that ID; None if the set has none. Raises Unavailable if there is no set to look into."""
        if where.startswith("/"):
            return self._read_file(where).get(public_key_id)
        async with self._fetching[where]:  # those who wait share one fetch
            found, now = self._fetched.get(where), time.monotonic()
            wanted = found is None or now - found.at > REFRESH_SECONDS or public_key_id not in found.keys
            if wanted and now - self._tried.get(where, -RETRY_SECONDS) >= RETRY_SECONDS:
                self._tried[where] = now
                found = await self._fetch(where) or found
        if found is None or now - found.at > STALE_SECONDS:
            raise Unavailable(f"the keys at {where} cannot be fetched; the log says why")
        return found.keys.get(public_key_id)

    async def _fetch(self, where: str) -> _FetchedKeys | None:
        try:
            keys = parse_key_set(await asyncio.to_thread(_download, where))
        except Unavailable as error:
            _log.warning("%s: %s", where, error)
            return None
        self._fetched[where] = _FetchedKeys(keys, time.monotonic())
        return self._fetched[where]

    def _read_file(self, name: str) -> Keys:
        """Returns the keys of a file, and reads it again when it has changed. Refuses a file that others may write."""
        try:
            facts = Path(name).stat()
            version = (facts.st_mtime_ns, facts.st_ino, facts.st_size)
            if name in self._files and self._files[name][0] == version:
                return self._files[name][1]
            if facts.st_mode & OTHERS_WRITE:
                raise Unavailable(f"the key set {name} can be changed by others: chmod go-w")
            with Path(name).open("rb") as file:
                keys = parse_key_set(file.read(MAX_KEY_SET + 1))
        except OSError as error:
            raise Unavailable(f"the key set {name} cannot be read: {error.strerror}") from error
        self._files[name] = (version, keys)
        return keys


def parse_key_set(text: bytes) -> Keys:
    """Returns the public keys of a JWKS that are good for signatures, by their IDs; Unavailable if it is no JWKS."""
    if len(text) > MAX_KEY_SET:
        raise Unavailable(f"the key set is larger than {MAX_KEY_SET // 1024} KiB")
    try:
        listed = json.loads(text)["keys"]
        rows = [row for row in listed[:MAX_KEYS] if isinstance(row, dict)]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Unavailable("it is no key set") from error
    found = ((row.get("kid"), _import_key(row)) for row in rows if row.get("use", "sig") == "sig")
    return {public_key_id: key for public_key_id, key in found if isinstance(public_key_id, str) and key is not None}


def _import_key(row: dict[str, Any]) -> Key | None:
    """Returns a public key; None for a secret, a weak one, or what we do not know."""
    models: dict[str, type[RSAKey | ECKey | OKPKey]] = {"RSA": RSAKey, "EC": ECKey, "OKP": OKPKey}
    model = models.get(str(row.get("kty")))
    try:
        key = model.import_key(row) if model else None
    except (JoseError, ValueError, TypeError, KeyError, UserWarning):
        return None
    if isinstance(key, RSAKey) and key.raw_value.key_size < MIN_RSA_BITS:
        return None
    return key


@cache
def _make_opener() -> urllib.request.OpenerDirector:
    """Returns an opener that follows no redirect: keys come from where the identities file says, or not at all."""

    class NoRedirects(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *args: object) -> None:
            return None

    return urllib.request.build_opener(NoRedirects)


def _download(url: str) -> bytes:
    """Returns what is at a URL, or raises Unavailable: within a size, and within a time, however slowly it comes."""
    deadline, parts, size = time.monotonic() + FETCH_SECONDS, [], 0
    try:
        with _make_opener().open(url, timeout=FETCH_SECONDS) as answer:
            while part := answer.read1(65_536):
                parts.append(part)
                size += len(part)
                if size > MAX_KEY_SET or time.monotonic() > deadline:
                    raise Unavailable("the key set is too large, or comes too slowly")
    except urllib.error.HTTPError as error:
        error.close()
        raise Unavailable(f"it answered {error.code}, which is not followed") from error
    except (OSError, HTTPException, ValueError) as error:
        raise Unavailable(format_one_line(error, 200)) from error
    return b"".join(parts)
