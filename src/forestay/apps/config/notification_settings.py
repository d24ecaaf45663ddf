"""Notification channels: tables of the settings file."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from forestay.domain.exceptions.incidents.notifications import FOR_PEOPLE, ChannelFilter, NotificationKind
from forestay.formats.text.document_fields import duration_of

_Name = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
_Reference = Annotated[str, Field(max_length=1000, pattern=r"^(env:[A-Za-z_][A-Za-z0-9_]*|file:/.+)$")]
_Address = Annotated[str, Field(max_length=254, pattern=r"^[^@\s,<>]+@[^@\s,<>]+$")]
_Seconds = BeforeValidator(lambda value: duration_of(value) if isinstance(value, str) else value)


class NotificationChannelTable(BaseModel):
    """A channel for notifications about alerts and failures that need attention."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: _Name
    kind: Literal["mail", "webhook", "apprise"]
    url: Annotated[str, Field(max_length=500, pattern=r"^(https?|smtp|smtps|starttls)://[^@?#\s]+$")] = ""
    """For a webhook: its address. For mail: the server, as `smtp://HOST:25`, `starttls://HOST:587` or `smtps://HOST:465`."""
    secret: _Reference | None = None
    """Where the secret is, `env:NAME` or `file:PATH`: a webhook's bearer token, the mail password, Apprise's addresses, one per line."""
    user: Annotated[str, Field(max_length=254)] = ""
    """For mail: the user who logs in."""
    sender: _Address | None = None
    """For mail: the sender's address."""
    to: Annotated[tuple[_Address, ...], Field(max_length=50)] = ()
    """For mail: the recipients."""
    tenants: Annotated[tuple[str, ...], Field(min_length=1)] = ("default",)
    """The tenants whose notifications it gets."""
    owners: tuple[str, ...] = ()
    """Only for these owners' jobs; empty: for everyone's."""
    what: Annotated[tuple[NotificationKind, ...], Field(min_length=1)] = FOR_PEOPLE
    """`waits`: incidents that need attention; `alert`: alerts; `audit`: the end of the audit log, every hour."""
    window: Annotated[int, _Seconds, Field(ge=1, le=7 * 86_400)] = 900
    """Seconds, or a text such as `15 min`: after the first notification of a topic, further ones are collected for this long."""
    most: Annotated[int, Field(ge=1, le=1000)] = 10
    """Maximum number of notifications in a window."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        web = self.url.startswith("http")
        if self.kind == "webhook" and not web:
            raise ValueError("a webhook needs a url that starts with http:// or https://")
        if self.kind == "mail" and not (self.url and not web and self.sender and self.to):
            raise ValueError("mail needs url (smtp://HOST:PORT), sender and to")
        if self.kind == "mail" and bool(self.user) != bool(self.secret):
            raise ValueError("mail needs both user and secret, or neither")
        if self.kind == "mail" and self.secret and self.url.startswith("smtp:"):
            raise ValueError("a password requires TLS: use starttls:// or smtps://")
        if self.kind == "apprise" and (not self.secret or self.url):
            raise ValueError("Apprise's addresses are secrets: set secret to the file or variable, and no url")
        return self

    @property
    def where(self) -> str:
        """The destination of notifications, without secrets."""
        return f"{self.url} to {', '.join(self.to)}" if self.to else self.url or f"address in {self.secret}"

    @property
    def addressee(self) -> ChannelFilter:
        return ChannelFilter(
            self.name,
            frozenset(self.tenants),
            frozenset(self.owners),
            frozenset(self.what),
            self.window * 1000,
            self.most,
        )
