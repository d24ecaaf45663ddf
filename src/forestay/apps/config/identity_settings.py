"""The identity provider: a table of the settings file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, model_validator

from forestay.ports.operations.identity import Role
from forestay.services.jobs.identity_claims import WORD, ClaimMap
from forestay.services.operations.oidc_provider import ProviderTerms

_Claim = Annotated[str, Field(min_length=1, max_length=200)]
_Value = Annotated[str, Field(min_length=1, max_length=500)]
_Reference = Annotated[str, Field(max_length=1000, pattern=r"^(env:[A-Za-z_][A-Za-z0-9_]*|file:/.+)$")]
_HERE = frozenset({"127.0.0.1", "::1", "localhost"})


class OidcTable(BaseModel):
    """An OpenID Connect provider that authenticates people and programs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    issuer: Annotated[str, Field(max_length=500, pattern=r"^https?://[^@?#\s]+$")]
    """The issuer's address, for example `https://login.example.org`. Its keys are discovered from there."""
    audience: Annotated[str, Field(min_length=1, max_length=500)]
    """The value that `aud` of a token must contain."""
    client: Annotated[str, Field(max_length=500)] = ""
    """The client with which the web pages log people in; empty: no log-in page."""
    client_secret: _Reference | None = None
    """Where the client's secret is: `env:NAME` or `file:PATH`; unset: it has none."""
    scopes: Annotated[str, Field(max_length=500, pattern=r"^openid( [!#-\[\]-~]+)*$")] = "openid"
    """The scopes that the web pages request at log-in, separated by spaces."""
    algorithms: Annotated[
        tuple[Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"], ...],
        Field(min_length=1),
    ] = ("RS256", "ES256")
    """Accepted signature algorithms; tokens with others are refused."""
    leeway: Annotated[int, Field(ge=0, le=300)] = 60
    """Tolerated clock difference in seconds."""
    subject: _Claim = "sub"
    """The claim with the subject's name; for `email` only a verified address counts."""
    tenant: Annotated[str, Field(max_length=64)] = ""
    """The tenant of everybody, unless `tenant_claim` is set."""
    tenant_claim: Annotated[str, Field(max_length=200)] = ""
    """The claim with the subject's tenant."""
    tenants: dict[_Value, Annotated[str, Field(max_length=64)]] = Field(default_factory=dict)
    """Tenants by values of that claim; if empty, the value itself is the tenant."""
    roles_claim: _Claim = "roles"
    """The claim with the subject's roles; `realm_access.roles` is a nested claim."""
    roles: dict[_Value, tuple[Role, ...]] = Field(default_factory=dict)
    """Roles by values of that claim, `*` for everybody."""
    hosts: tuple[Annotated[str, Field(max_length=300)], ...] = ()
    """Hosts other than the issuer's that its documents may name for keys and tokens, for example `www.googleapis.com`; with the prefix `private:` for one on a private network."""
    ca: Path | None = None
    """File with the CA certificates trusted for the provider; default: the system's."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        parts = urlsplit(self.issuer)
        if parts.scheme == "http" and parts.hostname not in _HERE:
            raise ValueError("the issuer's address must start with https:// unless it is on this machine")
        if bool(self.tenant) == bool(self.tenant_claim):
            raise ValueError("set either tenant or tenant_claim")
        if self.tenants and not self.tenant_claim:
            raise ValueError("tenants needs tenant_claim")
        for name in filter(None, (self.tenant, *self.tenants.values())):
            if not WORD.fullmatch(name):
                raise ValueError(f"{name} is not a valid tenant: use letters, digits and ._@+-")
        if any(Role.PILOT in roles for roles in self.roles.values()):
            raise ValueError("a pilot gets its own token from the server")
        if self.client_secret and not self.client:
            raise ValueError("client_secret needs client")
        return self

    @property
    def terms(self) -> ProviderTerms:
        by = ClaimMap(
            subject=self.subject,
            tenant=self.tenant,
            tenant_claim=self.tenant_claim,
            tenants=self.tenants,
            roles_claim=self.roles_claim,
            roles={value: frozenset(roles) for value, roles in self.roles.items()},
        )
        return ProviderTerms(self.issuer, self.audience, self.client, self.scopes, self.leeway, by)
