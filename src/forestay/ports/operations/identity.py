"""The caller of a request, and its rights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class Role(StrEnum):
    """The rights of a token; each role lists all of them, and an administrator may do everything in the tenant."""

    VIEWER = "viewer"
    SUBMITTER = "submitter"
    OPERATOR = "operator"
    RULE_AUTHOR = "rule-author"
    """Write rules and playbooks, promote and remove them."""
    APPROVER = "approver"
    """Approve another person's requests, where one person alone is not enough."""
    ADMINISTRATOR = "administrator"
    ENGINE = "engine"
    """Report the runs of another engine, whoever owns them, and obey orders for them."""
    ENROL = "enrol"
    """Register a pilot, and nothing else."""
    SITE = "site"
    """Manage the pilots of a site: create enrolments for them, and record their launches."""
    HINT = "hint"
    """Report that a task at a downstream server is over, so that it is polled; nothing else."""
    PILOT = "pilot"


IMPLIED: dict[Role, frozenset[Role]] = {
    Role.VIEWER: frozenset({Role.VIEWER}),
    Role.SUBMITTER: frozenset({Role.SUBMITTER, Role.VIEWER, Role.ENGINE}),
    Role.OPERATOR: frozenset({Role.OPERATOR, Role.RULE_AUTHOR, Role.SUBMITTER, Role.VIEWER, Role.ENGINE, Role.SITE}),
    Role.RULE_AUTHOR: frozenset({Role.RULE_AUTHOR, Role.VIEWER}),
    Role.APPROVER: frozenset({Role.APPROVER, Role.VIEWER}),
    Role.ADMINISTRATOR: frozenset(
        {
            Role.ADMINISTRATOR,
            Role.APPROVER,
            Role.RULE_AUTHOR,
            Role.OPERATOR,
            Role.SUBMITTER,
            Role.VIEWER,
            Role.ENGINE,
            Role.ENROL,
            Role.SITE,
            Role.HINT,
        }
    ),
    Role.ENGINE: frozenset({Role.ENGINE}),
    Role.ENROL: frozenset({Role.ENROL}),
    Role.SITE: frozenset({Role.SITE}),
    Role.HINT: frozenset({Role.HINT}),
    Role.PILOT: frozenset({Role.PILOT}),
}


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller identified by a token."""

    subject: str
    tenant: str
    roles: frozenset[Role]
    expires: int
    """Seconds since 1970."""
    issued: int = 0
    """Seconds since 1970; 0: the token does not say."""

    def may(self, role: Role) -> bool:
        return any(role in IMPLIED[own] for own in self.roles)


class BadToken(Exception):
    """The token identifies nobody; the text says why, without quoting it."""


class Identity(Protocol):
    """The port."""

    def issue(self, *, subject: str, tenant: str, roles: frozenset[Role], seconds: int) -> str:
        """A new token."""
        ...

    def verify(self, token: str, *, late: int = 0) -> Principal:
        """The caller that a token identifies; raises `BadToken`. A token may have expired up to `late` seconds ago."""
        ...

    def seal(self, words: Mapping[str, str], *, purpose: str, seconds: int) -> str:
        """Sign values that a client keeps and returns unchanged; the client can read them, and the result is not a token."""
        ...

    def unseal(self, text: str, *, purpose: str) -> Mapping[str, str]:
        """Sealed values, if they have that purpose and have not expired; raises `BadToken`."""
        ...
