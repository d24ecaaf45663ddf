"""Authenticates callers by token: our own, or one of the configured identity provider."""

from __future__ import annotations

from dataclasses import dataclass

from forestay.ports.operations.identity import BadToken, Identity, Principal
from forestay.services.operations.oidc_provider import OidcProvider
from forestay.services.operations.token_revocations import TokenRevocations

OWN = "HS256"
"""How our own tokens are signed: with a secret. No token so signed is ever looked at as the provider's, whose keys are public."""


@dataclass(slots=True)
class Authenticator:
    """The service."""

    identity: Identity
    revocations: TokenRevocations
    provider: OidcProvider | None = None

    async def verify(self, token: str, *, late: int = 0) -> Principal:
        """Who that is; raises `BadToken`. One of our own may be up to `late` seconds past its end."""
        who = await self._known(token, late)
        self.revocations.check(token, who)
        return who

    async def _known(self, token: str, late: int) -> Principal:
        try:
            return self.identity.verify(token, late=late)
        except BadToken:
            if self.provider is None or self.provider.signatures.head(token).algorithm == OWN:
                raise
        return await self.provider.verify(token)
