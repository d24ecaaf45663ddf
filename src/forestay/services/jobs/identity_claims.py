"""Maps the claims of an identity provider to a user and roles here, only by what the operator has configured."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from forestay.ports.operations.identity import BadToken, Principal, Role

WORD = re.compile(r"[A-Za-z0-9._@+-]{1,64}")
"""The pattern for names of people and tenants, in every token."""
MOST_VALUES = 1000


@dataclass(frozen=True, slots=True)
class ClaimMap:
    """Which claim has which meaning."""

    subject: str = "sub"
    tenant: str = ""
    """The tenant of everybody; empty: a claim names it."""
    tenant_claim: str = ""
    tenants: Mapping[str, str] = field(default_factory=dict)
    """Tenants by values of the claim; without any, the value is the tenant."""
    roles_claim: str = "roles"
    roles: Mapping[str, frozenset[Role]] = field(default_factory=dict)
    """Roles by values of the claim; `*` for everybody."""


def read_claims(claims: Mapping[str, object], by: ClaimMap, *, expires: int) -> Principal:
    """The caller; raises `BadToken` when a claim is missing, or is not a valid name here."""
    subject = claim(claims, by.subject)
    if by.subject == "email" and claims.get("email_verified") is not True:
        raise BadToken("the provider has not verified the e-mail address")
    if not isinstance(subject, str) or not WORD.fullmatch(subject):
        raise BadToken(f"the claim {by.subject} is missing or not a valid name")
    roles = frozenset(
        role for value in ("*", *values(claim(claims, by.roles_claim))) for role in by.roles.get(value, ())
    )
    issued = claims.get("iat", 0)
    return Principal(
        subject=subject,
        tenant=_tenant(claims, by),
        roles=roles,
        expires=expires,
        issued=int(issued) if isinstance(issued, (int, float)) else 0,
    )


def _tenant(claims: Mapping[str, object], by: ClaimMap) -> str:
    if by.tenant:
        return by.tenant
    returned_values = values(claim(claims, by.tenant_claim))
    tenants = (
        {by.tenants[value] for value in returned_values if value in by.tenants} if by.tenants else set(returned_values)
    )
    if len(tenants) != 1:
        # With two tenants neither is the right one, and a guess would show one tenant's jobs to the other.
        raise BadToken(f"the claim {by.tenant_claim} names {'no tenant' if not tenants else 'more than one tenant'}")
    (tenant,) = tenants
    if not WORD.fullmatch(tenant):
        raise BadToken(f"the claim {by.tenant_claim} is not a valid tenant")
    return tenant


def claim(claims: Mapping[str, object], name: str) -> object:
    """A claim by its name; without a claim of the whole name, the name is a path into nested claims, as in `realm_access.roles`."""
    if name in claims:
        return claims[name]
    inner: object = claims
    for part in name.split("."):
        inner = inner.get(part) if isinstance(inner, Mapping) else None
    return inner


def values(claim: object) -> list[str]:
    """A claim of one text or of several."""
    if isinstance(claim, str):
        return [claim]
    return [value for value in claim[:MOST_VALUES] if isinstance(value, str)] if isinstance(claim, list) else []
