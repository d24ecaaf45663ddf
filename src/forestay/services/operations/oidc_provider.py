"""Authenticates people by the tokens of an OpenID Connect provider, and logs them in through its page.

The provider's keys are cached and refreshed after a while, or at once when a token names an unknown key, but at a limited rate, so that a
stranger cannot make it a burden. While the provider does not answer, its last keys stay valid for a day.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from base64 import urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import urlencode

from forestay.ports.clock import Clock, Ids
from forestay.ports.errors import Permanent, Transient
from forestay.ports.operations.identity import BadToken, Identity, Principal
from forestay.ports.operations.oidc_endpoints import Keys, OidcEndpoints, Signatures
from forestay.services.jobs.identity_claims import ClaimMap, read_claims, values

FRESH = 600.0
"""Seconds after which the keys are refreshed: a key that the provider has removed is accepted for that long."""
COOL = 10.0
"""The least seconds between two refreshes, whatever key names strangers invent."""
STALE = 86_400.0
"""Seconds for which keys are valid while the provider does not answer."""
SEEN = 10_000
LOGIN_SECONDS = 600
PURPOSE = "login"


@dataclass(frozen=True, slots=True)
class ProviderTerms:
    """The operator's settings for a provider."""

    issuer: str
    audience: str
    """The audience that tokens on the API must have."""
    client: str = ""
    """The client id for log-ins; empty: the pages offer no log-in by the provider."""
    scopes: str = "openid"
    leeway: int = 60
    """Seconds by which the clocks may differ."""
    by: ClaimMap = field(default_factory=ClaimMap)


class StartedLogin(NamedTuple):
    """A started log-in: where the browser is sent, and what it keeps until it comes back."""

    url: str
    kept: str


class _Documents(NamedTuple):
    about: Mapping[str, object]
    keys: Keys
    shown: object
    """The keys as published, to detect a change."""


@dataclass(slots=True)
class OidcProvider:
    """The service."""

    terms: ProviderTerms
    endpoints: OidcEndpoints
    signatures: Signatures
    identity: Identity
    clock: Clock
    ids: Ids
    troubled: Callable[[str], None] = lambda _text: None
    _known: _Documents | None = None
    _read_at: float = 0.0
    _tried_at: float = 0.0
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    _seen: OrderedDict[str, Principal] = field(default_factory=OrderedDict)

    async def verify(self, token: str) -> Principal:
        """The caller that a token identifies; raises `BadToken`, or `Transient` while the provider was never reached."""
        await self._documents()
        principal = self._seen.get(token)
        if principal is None:
            claims = await self._claims(token)
            expires = self._check(claims, audience=self.terms.audience)
            principal = read_claims(claims, self.terms.by, expires=expires)
            self._seen[token] = principal
            if len(self._seen) > SEEN:
                self._seen.popitem(last=False)
        if self.clock.now() // 1000 >= principal.expires + self.terms.leeway:
            raise BadToken("the token has expired")
        return principal

    async def begin(self, back: str, *, on: str) -> StartedLogin:
        """Start a log-in; the browser comes back to `back`, and is then redirected to `on`."""
        about = (await self._documents()).about
        state, nonce, verifier = (self.ids.claim() + self.ids.claim() for _ in range(3))
        challenge = urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
        asked = {
            "response_type": "code",
            "client_id": self.terms.client,
            "redirect_uri": back,
            "scope": self.terms.scopes,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        kept = {"state": state, "nonce": nonce, "verifier": verifier, "on": on}
        where = str(about["authorization_endpoint"])
        url = f"{where}{'&' if '?' in where else '?'}{urlencode(asked)}"
        return StartedLogin(url, self.identity.seal(kept, purpose=PURPOSE, seconds=LOGIN_SECONDS))

    async def finish(self, kept: str, *, state: str, code: str, issuer: str, back: str) -> tuple[Principal, str]:
        """The person who has logged in, and the page to continue with; raises `BadToken`."""
        begun = self.identity.unseal(kept, purpose=PURPOSE)
        if not secrets.compare_digest(state.encode(), begun["state"].encode()):
            raise BadToken("this log-in was not started here; start again")
        if issuer not in ("", self.terms.issuer):
            raise BadToken("the response comes from another provider")
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": back,
            "code_verifier": begun["verifier"],
        }
        about = (await self._documents()).about
        try:
            traded = await self.endpoints.trade(str(about["token_endpoint"]), form, client=self.terms.client)
        except Permanent as error:
            raise BadToken(str(error)) from error
        token = traded.get("id_token")
        if not isinstance(token, str):
            raise BadToken("the provider returned no identity token")
        claims = await self._claims(token)
        expires = self._check(claims, audience=self.terms.client)
        nonce = claims.get("nonce")
        if not isinstance(nonce, str) or not secrets.compare_digest(nonce.encode(), begun["nonce"].encode()):
            raise BadToken("the provider's token belongs to another log-in")
        if len(values(claims.get("aud"))) > 1 and claims.get("azp") != self.terms.client:
            raise BadToken("the provider's token is for another client")
        return read_claims(claims, self.terms.by, expires=expires), begun["on"]

    def _check(self, claims: Mapping[str, object], *, audience: str) -> int:
        """When the claims expire (seconds since 1970), if they are the provider's, for us and valid now."""
        now, leeway = self.clock.now() // 1000, self.terms.leeway
        if claims.get("iss") != self.terms.issuer:
            raise BadToken("the token has another issuer")
        if audience not in values(claims.get("aud")):
            raise BadToken("the token is for another service")
        ends = claims.get("exp")
        if not _a_time(ends):
            raise BadToken("the token has no expiry")
        for name in ("nbf", "iat"):
            begins = claims.get(name, 0)
            if not _a_time(begins) or float(begins) > now + leeway:  # type: ignore[arg-type]
                raise BadToken("the token is not valid yet")
        if now >= int(ends) + leeway:  # type: ignore[call-overload]
            raise BadToken("the token has expired")
        return int(ends)  # type: ignore[call-overload, no-any-return]

    async def _claims(self, token: str) -> Mapping[str, object]:
        documents = await self._documents()
        if not documents.keys.has(self.signatures.head(token).key):
            documents = await self._documents(anew=True)
        return self.signatures.claims(token, documents.keys)

    async def _documents(self, *, anew: bool = False) -> _Documents:
        """The provider's published documents, not older than allowed."""
        if self._known is not None and not anew and self._age() < FRESH:
            return self._known
        async with self._reading:
            now = self.clock.monotonic()
            known = self._known
            if known is not None and (now - self._tried_at < COOL or (not anew and self._age() < FRESH)):
                return known
            self._tried_at = now
            try:
                read = await self._read()
            except Transient as error:
                if known is None or self._age() >= STALE:
                    raise
                self.troubled(str(error))
                return known
            if known is None or read.shown != known.shown:
                self._seen.clear()  # signatures of a removed key must no longer be accepted
            self._known, self._read_at = read, now
            return read

    async def _read(self) -> _Documents:
        about = await self.endpoints.read(self.terms.issuer.rstrip("/") + "/.well-known/openid-configuration")
        if about.get("issuer") != self.terms.issuer:
            raise Transient(f"the provider's issuer is not {self.terms.issuer}")
        secure = self.terms.issuer.startswith("https:")
        for name in ("jwks_uri", *(("authorization_endpoint", "token_endpoint") if self.terms.client else ())):
            where = about.get(name)
            if not isinstance(where, str) or not where.startswith("https://" if secure else ("https://", "http://")):
                raise Transient(f"the provider's {name} is not a trusted address")
        shown = await self.endpoints.read(str(about["jwks_uri"]))
        return _Documents(about, self.signatures.keys(shown), shown)

    def _age(self) -> float:
        return self.clock.monotonic() - self._read_at


def _a_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1 << 40
