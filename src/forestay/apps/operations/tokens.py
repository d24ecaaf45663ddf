"""Creates tokens for people, services and pilots, on a machine that has the signing key."""

from __future__ import annotations

from collections.abc import Sequence

from forestay.adapters.joserfc.identity import SignedIdentity, signing_keys
from forestay.adapters.system.clock import SystemClock
from forestay.apps.config.settings import Settings
from forestay.ports.errors import Permanent
from forestay.ports.operations.identity import Role
from forestay.services.jobs.identity_claims import WORD


def make_token(settings: Settings, *, subject: str, tenant: str, roles: Sequence[str], seconds: int) -> str:
    """A token; `Permanent` says which of its parts is wrong."""
    for what, text in (("subject", subject), ("tenant", tenant)):
        if not WORD.fullmatch(text):
            raise Permanent(f"the {what} may have at most 64 letters, digits and ._@+-")
    try:
        allowed = frozenset(Role(role) for role in roles)
    except ValueError as error:
        names = ", ".join(role for role in Role if role is not Role.PILOT)
        raise Permanent(f"{error}; roles are {names}") from error
    if Role.PILOT in allowed:
        raise Permanent("a pilot gets its own token from the server; give it a token of the role enrol")
    identity = SignedIdentity(signing_keys(settings.key_file), SystemClock())
    return identity.issue(subject=subject, tenant=tenant, roles=allowed, seconds=seconds)
