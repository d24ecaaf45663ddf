"""What an OpenID Connect provider must supply: its documents, and signatures that can be verified."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol


class TokenHeader(NamedTuple):
    """The unverified header of a token."""

    algorithm: str
    key: str
    """The name of the key that signed it; empty: it names none."""


class OidcEndpoints(Protocol):
    """The provider's addresses, which the settings name: nothing is asked for by a request's word."""

    async def read(self, url: str) -> Mapping[str, object]:
        """A document. `Transient` when it does not come now, or is none."""
        ...

    async def trade(self, url: str, form: Mapping[str, str], *, client: str) -> Mapping[str, object]:
        """Trade a code for tokens, as the client with its secret if it has one. `Permanent` when the provider refuses the code."""
        ...


class Keys(Protocol):
    """The provider's public keys, as they were read."""

    def has(self, name: str) -> bool:
        """Whether a token that names this key can be checked; an empty name is good where there is one key only."""
        ...


class Signatures(Protocol):
    """Checks signatures, by pinned algorithms and the given keys alone."""

    def keys(self, document: Mapping[str, object]) -> Keys:
        """The keys of a JWKS document that may sign tokens; what cannot is left out. `Transient` if there is none."""
        ...

    def head(self, token: str) -> TokenHeader:
        """What a token says of itself; raises `BadToken` if it is none."""
        ...

    def claims(self, token: str, keys: Keys) -> Mapping[str, object]:
        """What a token says, when its signature is good; raises `BadToken`. Times, issuer and audience are not looked at."""
        ...
