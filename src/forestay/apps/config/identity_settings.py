"""A provider of identities as an operator writes it: a table of the settings file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, model_validator

from forestay.ports.operations.identity import Role
from forestay.services.jobs.read_claims import WORD, ClaimMap
from forestay.services.operations.ask_provider import ProviderTerms

_Claim = Annotated[str, Field(min_length=1, max_length=200)]
_Value = Annotated[str, Field(min_length=1, max_length=500)]
_Reference = Annotated[str, Field(max_length=1000, pattern=r"^(env:[A-Za-z_][A-Za-z0-9_]*|file:/.+)$")]
_HERE = frozenset({"127.0.0.1", "::1", "localhost"})


class OidcTable(BaseModel):
    """A provider of OpenID Connect whose word is taken for who somebody is."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    issuer: Annotated[str, Field(max_length=500, pattern=r"^https?://[^@?#\s]+$")]
    """Its name, which is an address: `https://login.example.org`. Its keys are found from there."""
    audience: Annotated[str, Field(min_length=1, max_length=500)]
    """What `aud` of a token must hold."""
    client: Annotated[str, Field(max_length=500)] = ""
    """The client by which the pages log people in; empty: they do not."""
    client_secret: _Reference | None = None
    """Where the client's secret is: `env:NAME` or `file:PATH`; unset: it has none."""
    scopes: Annotated[str, Field(max_length=500, pattern=r"^openid( [!#-\[\]-~]+)*$")] = "openid"
    """What the pages ask for at log-in, with a space between."""
    algorithms: Annotated[
        tuple[Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"], ...],
        Field(min_length=1),
    ] = ("RS256", "ES256")
    """How tokens may be signed; all others are refused, whatever they say of themselves."""
    leeway: Annotated[int, Field(ge=0, le=300)] = 60
    """Seconds by which its clock may differ from ours."""
    subject: _Claim = "sub"
    """The claim that says what somebody is called; of `email` only an address that the provider has verified counts."""
    tenant: Annotated[str, Field(max_length=64)] = ""
    """The tenant of everybody; or else a claim says it."""
    tenant_claim: Annotated[str, Field(max_length=200)] = ""
    """The claim that says whose tenant somebody belongs to."""
    tenants: dict[_Value, Annotated[str, Field(max_length=64)]] = Field(default_factory=dict)
    """Tenants by values of that claim; without any, the value itself is the tenant."""
    roles_claim: _Claim = "roles"
    """The claim by which roles are given; `realm_access.roles` is a claim in a claim."""
    roles: dict[_Value, tuple[Role, ...]] = Field(default_factory=dict)
    """Roles by values of that claim, `*` for everybody."""
    hosts: tuple[Annotated[str, Field(max_length=300)], ...] = ()
    """Other hosts than the issuer's that its documents may name for keys and tokens, such as `www.googleapis.com`; with `private:` before one on a private network."""
    ca: Path | None = None
    """File with the certificates by which the provider is trusted; unset: those that everybody trusts."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        parts = urlsplit(self.issuer)
        if parts.scheme == "http" and parts.hostname not in _HERE:
            raise ValueError("an issuer that is not on this machine has an address of https")
        if bool(self.tenant) == bool(self.tenant_claim):
            raise ValueError("set either tenant or tenant_claim")
        if self.tenants and not self.tenant_claim:
            raise ValueError("tenants are values of a claim: set tenant_claim")
        for name in filter(None, (self.tenant, *self.tenants.values())):
            if not WORD.fullmatch(name):
                raise ValueError(f"{name} cannot be a tenant: letters, digits and ._@+-")
        if any(Role.PILOT in roles for roles in self.roles.values()):
            raise ValueError("a pilot gets its own token from the server")
        if self.client_secret and not self.client:
            raise ValueError("client_secret is that of a client: set client")
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
