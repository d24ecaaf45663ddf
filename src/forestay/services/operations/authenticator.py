"""Authenticates callers by token: our own, or one of the configured identity provider."""

from __future__ import annotations

from dataclasses import dataclass

from forestay.ports.operations.identity import BadToken, Identity, Principal
from forestay.services.operations.oidc_provider import OidcProvider
from forestay.services.operations.token_revocations import TokenRevocations

OWN = "HS256"
"""The algorithm of our own tokens, which are signed with a secret. No such token is ever verified as the provider's, whose keys are public."""


@dataclass(slots=True)
class Authenticator:
    """The service."""

    identity: Identity
    revocations: TokenRevocations
    provider: OidcProvider | None = None

    async def verify(self, token: str, *, late: int = 0) -> Principal:
        """The caller that a token identifies; raises `BadToken`. One of our own may have expired up to `late` seconds ago."""
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
