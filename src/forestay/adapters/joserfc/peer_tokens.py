"""Tokens between domains: JWT signed with Ed25519, for one peer, valid for a minute."""

from __future__ import annotations

import json
import secrets
from base64 import urlsafe_b64decode
from functools import lru_cache
from pathlib import Path

from joserfc import jws, jwt
from joserfc.errors import JoseError
from joserfc.jwk import OKPKey

from forestay.adapters.private_file import make_private, must_be_private
from forestay.ports.clock import Clock
from forestay.ports.errors import Permanent
from forestay.ports.operations.identity import BadToken
from forestay.ports.peers.peer import Caller

ALGORITHM = "Ed25519"
KIND = "forestay-peer+jwt"
SECONDS = 60
EARLY = 30
"""Seconds that the clock of another domain may be ahead of ours."""


class Ed25519Tokens:
    """Implements `ports.peers.peer.PeerTokens`."""

    def __init__(self, file: Path, clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self._own: OKPKey | None = None

    @property
    def public(self) -> str:
        return json.dumps(self._key().as_dict(private=False, use=None), sort_keys=True)

    def _key(self) -> OKPKey:
        """The key pair, read when it is first needed: a domain without peers has no such file."""
        if self._own is None:
            self._own = _stored(self._file)
        return self._own

    def name(self, key: str) -> str:
        return _public(key).thumbprint()

    def make(self, key: str, who: Caller) -> str:
        own = self._key()
        now = self._clock.now() // 1000
        claims = {
            "iss": own.thumbprint(),
            "aud": self.name(key),
            "tenant": who.tenant,
            "sub": who.subject,
            "iat": now,
            "exp": now + SECONDS,
            "jti": secrets.token_hex(8),
        }
        return jwt.encode({"alg": ALGORITHM, "typ": KIND}, claims, own, algorithms=[ALGORITHM])

    def issuer(self, token: str) -> str:
        if not _of_a_peer(token.partition(".")[0]):
            return ""
        try:
            claims = json.loads(jws.extract_compact(token.encode()).payload)
        except (JoseError, ValueError):
            return ""
        iss = claims.get("iss") if isinstance(claims, dict) else None
        return iss if isinstance(iss, str) else ""

    def verify(self, token: str, key: str) -> Caller:
        try:
            claims = jwt.decode(token, _public(key), algorithms=[ALGORITHM]).claims
        except (JoseError, ValueError) as error:
            raise BadToken("the token is not signed by this peer") from error
        if claims.get("aud") != self._key().thumbprint():
            raise BadToken("the token is for another domain")
        now = self._clock.now() // 1000
        made, ends = claims.get("iat"), claims.get("exp")
        if not isinstance(made, int) or not isinstance(ends, int) or ends - made > SECONDS or made > now + EARLY:
            raise BadToken("a peer's token is valid for one minute; check the clocks")
        if now >= ends:
            raise BadToken("the token has expired")
        tenant, subject = claims.get("tenant"), claims.get("sub")
        if not isinstance(tenant, str) or not isinstance(subject, str) or not tenant or not subject:
            raise BadToken("the token has no tenant or subject")
        return Caller(tenant, subject)


@lru_cache(maxsize=256)
def _of_a_peer(head: str) -> bool:
    """Whether a header is that of a peer's token. Cached, because every token is checked and there are few different headers."""
    try:
        return bool(json.loads(urlsafe_b64decode(f"{head}==")).get("typ") == KIND)
    except (ValueError, AttributeError):
        return False


def _public(key: str) -> OKPKey:
    """Parse a public key; `Permanent` if the text is not one."""
    try:
        document = json.loads(key)
        # Only the public part: a private key that somebody sent by mistake is not kept.
        return OKPKey.import_key({name: document[name] for name in ("kty", "crv", "x")})
    except (JoseError, ValueError, KeyError, TypeError) as error:
        raise Permanent(
            "the key of a peer is an Ed25519 public key as JSON; `forestay peers key` prints a domain's own"
        ) from error


def _stored(path: Path) -> OKPKey:
    """The key pair in a file that only its owner may read; created where there is none."""
    if not path.exists():
        make_private(path, json.dumps(OKPKey.generate_key("Ed25519").as_dict(private=True)))
    must_be_private(path, "it identifies this domain to its peers")
    try:
        return OKPKey.import_key(json.loads(path.read_text()))
    except (JoseError, ValueError) as error:
        raise Permanent(
            f"{path} contains no Ed25519 key; delete it to create a new one, and register the new key with your peers"
        ) from error
