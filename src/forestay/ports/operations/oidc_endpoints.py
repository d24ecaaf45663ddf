"""What an OpenID Connect provider must supply: its documents, and signatures that can be verified."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol


class TokenHeader(NamedTuple):
    """The unverified header of a token."""

    algorithm: str
    key: str
    """The name of the key that signed it; empty: the header names none."""


class OidcEndpoints(Protocol):
    """The provider's addresses, which come from the settings: a request cannot choose what is fetched."""

    async def read(self, url: str) -> Mapping[str, object]:
        """Fetch a document. `Transient` when it cannot be fetched now, or is not a document."""
        ...

    async def trade(self, url: str, form: Mapping[str, str], *, client: str) -> Mapping[str, object]:
        """Exchange a code for tokens, as the client with its secret if it has one. `Permanent` when the provider refuses the code."""
        ...


class Keys(Protocol):
    """The provider's public keys as last read."""

    def has(self, name: str) -> bool:
        """Whether a token that names this key can be verified; an empty name is valid where there is only one key."""
        ...


class Signatures(Protocol):
    """Verifies signatures, with pinned algorithms and the given keys only."""

    def keys(self, document: Mapping[str, object]) -> Keys:
        """The keys of a JWKS document that may sign tokens; others are left out. `Transient` if there is none."""
        ...

    def head(self, token: str) -> TokenHeader:
        """The header of a token; raises `BadToken` if the text is not a token."""
        ...

    def claims(self, token: str, keys: Keys) -> Mapping[str, object]:
        """The claims of a token with a valid signature; raises `BadToken`. Times, issuer and audience are not checked."""
        ...
