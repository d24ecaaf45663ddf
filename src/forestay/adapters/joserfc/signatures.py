"""Verifies the signatures of an identity provider's tokens: only asymmetric algorithms, only keys that the provider publishes."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from collections.abc import Mapping

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey

from forestay.ports.errors import Transient
from forestay.ports.operations.identity import BadToken
from forestay.ports.operations.oidc_endpoints import Keys, TokenHeader

ALGORITHMS = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"}
)
"""All algorithms that may be allowed. None of them uses a public key as a secret."""
TYPES = frozenset({"", "jwt", "at+jwt", "application/at+jwt"})
"""The accepted types of tokens: others, such as log-out tokens, have different types."""
LONGEST_NAME = 256
MOST_KEYS = 64
SMALLEST_RSA = 2048
_KINDS: Mapping[str, type[RSAKey | ECKey | OKPKey]] = {"RSA": RSAKey, "EC": ECKey, "OKP": OKPKey}
_NOT_THEIRS = "the token was not issued by the provider"


class ProviderKeys:
    """Implements `ports.operations.oidc_endpoints.Keys`."""

    def __init__(self, keys: Mapping[str, RSAKey | ECKey | OKPKey]) -> None:
        self._keys = keys

    def has(self, name: str) -> bool:
        return self.get(name) is not None

    def get(self, name: str) -> RSAKey | ECKey | OKPKey | None:
        if not name:
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        return self._keys.get(name)


class JoseSignatures:
    """Implements `ports.operations.oidc_endpoints.Signatures`."""

    def __init__(self, algorithms: frozenset[str]) -> None:
        self._algorithms = sorted(algorithms & ALGORITHMS)

    def keys(self, document: Mapping[str, object]) -> ProviderKeys:
        listed = document.get("keys")
        keys = {}
        for other_key in listed[:MOST_KEYS] if isinstance(listed, list) else ():
            key = _key(other_key)
            if key is not None:
                keys[str(other_key.get("kid", ""))] = key
        if not keys:
            raise Transient("the provider publishes no usable signing key")
        return ProviderKeys(keys)

    def head(self, token: str) -> TokenHeader:
        try:
            first = token.split(".", 1)[0]
            read = json.loads(urlsafe_b64decode(first + "=" * (-len(first) % 4)))
            head = TokenHeader(read.get("alg", ""), read.get("kid", ""))
            kind = read.get("typ", "")
        except (ValueError, AttributeError, RecursionError) as error:
            raise BadToken(_NOT_THEIRS) from error
        if not all(isinstance(text, str) and len(text) <= LONGEST_NAME for text in (*head, kind)):
            raise BadToken(_NOT_THEIRS)
        if kind.lower() not in TYPES:
            raise BadToken("the token has another type")
        return head

    def claims(self, token: str, keys: Keys) -> Mapping[str, object]:
        head = self.head(token)
        if head.algorithm not in self._algorithms:
            raise BadToken("the token's signature algorithm is not allowed")
        key = keys.get(head.key) if isinstance(keys, ProviderKeys) else None
        if key is None:
            raise BadToken("the token is signed by a key that the provider does not publish")
        try:
            # With this key only: keys and key URLs in a token's header are ignored.
            return jwt.decode(token, key, algorithms=self._algorithms).claims
        except (JoseError, ValueError, TypeError, RecursionError) as error:
            raise BadToken(_NOT_THEIRS) from error


def _key(other_key: object) -> RSAKey | ECKey | OKPKey | None:
    """A key that may verify signatures; None for anything else."""
    if not isinstance(other_key, dict) or other_key.get("use", "sig") != "sig":
        return None
    kind = _KINDS.get(str(other_key.get("kty")))
    if kind is None:
        return None
    try:
        key = kind.import_key(other_key)
        # A published private key is compromised and not accepted.
        if key.is_private or (isinstance(key, RSAKey) and key.raw_value.key_size < SMALLEST_RSA):
            return None
    except (JoseError, ValueError, TypeError, KeyError):
        return None
    return key
