"""Tokens signed by the installation's own key (JWT, HS256)."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import OctKey

from forestay.adapters.private_file import make_private, must_be_private
from forestay.ports.clock import Clock
from forestay.ports.errors import Permanent
from forestay.ports.operations.identity import BadToken, Principal, Role

AUDIENCE = "forestay"
SEALED = "forestay-sealed"
"""The audience of sealed values, which no consumer of tokens accepts."""
CACHE = 150_000
"""The most verified tokens that are cached: as many as there are pilots, or every heartbeat would be verified again."""


class SignedIdentity:
    """Implements `ports.operations.identity.Identity`."""

    def __init__(self, keys: Sequence[bytes], clock: Clock) -> None:
        """The first key signs; signatures of all keys are valid, so that keys can be rotated."""
        self._keys = [OctKey.import_key(key) for key in keys]
        self._key = self._keys[0]
        self._clock = clock
        self._seen: OrderedDict[str, Principal] = OrderedDict()

    def issue(self, *, subject: str, tenant: str, roles: frozenset[Role], seconds: int) -> str:
        now = self._clock.now() // 1000
        claims = {
            "aud": AUDIENCE,
            "sub": subject,
            "tenant": tenant,
            "roles": sorted(role.value for role in roles),
            "iat": now,
            "exp": now + seconds,
            "jti": secrets.token_hex(8),
        }
        return jwt.encode({"alg": "HS256", "typ": "JWT"}, claims, self._key)

    def verify(self, token: str, *, late: int = 0) -> Principal:
        principal = self._seen.get(token)
        if principal is None:
            principal = self._read(token)
            self._seen[token] = principal
            if len(self._seen) > CACHE:
                self._seen.popitem(last=False)
        if self._clock.now() // 1000 >= principal.expires + late:
            raise BadToken("the token has expired")
        return principal

    def _read(self, token: str) -> Principal:
        claims = self._signed(token)
        if claims.get("aud") != AUDIENCE:
            raise BadToken("the token is for another service")
        try:
            return Principal(
                subject=_text(claims["sub"]),
                tenant=_text(claims["tenant"]),
                roles=frozenset(Role(role) for role in claims["roles"]),
                expires=int(claims["exp"]),
                issued=int(claims.get("iat", 0)),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise BadToken("the token has no subject, tenant, role or expiry") from error

    def _signed(self, token: str) -> dict[str, Any]:
        why: Exception | None = None
        for key in self._keys:
            try:
                return jwt.decode(token, key, algorithms=["HS256"]).claims
            except (JoseError, ValueError) as error:
                why = error
        raise BadToken("the token was not issued by this domain") from why

    def seal(self, words: Mapping[str, str], *, purpose: str, seconds: int) -> str:
        ends = self._clock.now() // 1000 + seconds
        claims = {"aud": SEALED, "purpose": purpose, "words": dict(words), "exp": ends}
        return jwt.encode({"alg": "HS256", "typ": "JWT"}, claims, self._key)

    def unseal(self, text: str, *, purpose: str) -> Mapping[str, str]:
        claims = self._signed(text)
        if claims.get("aud") != SEALED or claims.get("purpose") != purpose:
            raise BadToken("the sealed value has another purpose")
        if self._clock.now() // 1000 >= claims["exp"]:
            raise BadToken("the sealed value has expired")
        words: Mapping[str, str] = claims["words"]
        return words


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("not a name")
    return value


def signing_keys(path: Path) -> list[bytes]:
    """The keys in a file that only its owner may read, one on each line; created where there is none."""
    if not path.exists():
        make_private(path, secrets.token_hex(32))
    must_be_private(path, "it signs every token")
    keys = path.read_text().split()
    if not keys or min(map(len, keys)) < 32:
        raise Permanent(f"{path} is too short for a signing key; delete it to create a new one at the next start")
    return [key.encode() for key in keys]
