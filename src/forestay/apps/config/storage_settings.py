"""Storage elements: tables of the settings file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from forestay.domain.data.storage_element import AccessProtocol, Door, NameRule, StorageElement, check_elements
from forestay.ports.data.storage import Credentials

_Name = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
_Reference = Annotated[str, Field(max_length=1000, pattern=r"^(env:[A-Za-z_][A-Za-z0-9_]*|file:/.+)$")]
"""Where a secret is: a variable of the environment, or a file. Never the secret itself."""
_SCHEMES = {
    AccessProtocol.HTTP: ("http://", "https://"),
    AccessProtocol.S3: ("http://", "https://"),
    AccessProtocol.ROOT: ("root://", "roots://"),
}


class _StorageTable(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DoorTable(_StorageTable):
    """One way to reach an element: `path` of a folder that pilots see, or `url`."""

    kind: AccessProtocol
    url: Annotated[str, Field(max_length=500)] = ""
    path: Annotated[str, Field(max_length=500)] = ""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.kind is AccessProtocol.FILE:
            if self.url or not self.path.startswith("/"):
                raise ValueError("an element of kind file needs an absolute path and no url")
        elif self.path or not self.url.startswith(_SCHEMES[self.kind]):
            raise ValueError(f"an element of kind {self.kind} needs a url that starts with {_SCHEMES[self.kind][0]}")
        if "@" in self.url or "?" in self.url:
            raise ValueError("a url must not contain credentials or a query")
        return self

    @property
    def door(self) -> Door:
        base = self.path if self.kind is AccessProtocol.FILE else self.url
        return Door(self.kind, base.rstrip("/") or base)


class RuleTable(_StorageTable):
    """Logical names that match `match` are stored at `to` on the element."""

    match: Annotated[str, Field(max_length=600)]
    to: Annotated[str, Field(max_length=600)]


class ElementTable(DoorTable):
    """A storage element."""

    name: _Name
    doors: Annotated[tuple[DoorTable, ...], Field(max_length=8)] = ()
    """Other ways to reach the same files."""
    rules: tuple[RuleTable, ...] = ()
    sites: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()
    outputs: Annotated[str, Field(max_length=500)] = ""
    """The folder on it for outputs of jobs; unset: pilots keep them in their own folder."""
    private: bool = False
    access_key: _Reference | None = None
    """For S3: `env:NAME` or `file:PATH`."""
    secret_key: _Reference | None = None
    region: Annotated[str, Field(max_length=64)] = "us-east-1"

    @model_validator(mode="after")
    def _keys(self) -> Self:
        if AccessProtocol.S3 in {self.kind, *(door.kind for door in self.doors)} and not (
            self.access_key and self.secret_key
        ):
            raise ValueError("S3 needs access_key and secret_key, each as env:NAME or file:PATH")
        return self

    @property
    def element(self) -> StorageElement:
        return StorageElement(
            name=self.name,
            doors=(self.door, *(table.door for table in self.doors)),
            rules=tuple(NameRule(rule.match, rule.to) for rule in self.rules),
            sites=frozenset(self.sites),
            tenants=frozenset(self.tenants),
            outputs=self.outputs.strip("/"),
            private=self.private,
        )


def elements_of(tables: Sequence[ElementTable]) -> Mapping[str, StorageElement]:
    """The elements by name, in the order of the settings. `ValueError` lists everything that is invalid."""
    elements = tuple(table.element for table in tables)
    if wrong := list(check_elements(elements)):
        raise ValueError("; ".join(wrong))
    return {element.name: element for element in elements}


def credentials_of(tables: Sequence[ElementTable]) -> Mapping[str, Credentials]:
    """The references to each element's credentials."""
    return {
        table.name: Credentials(table.access_key, table.secret_key, table.region)
        for table in tables
        if table.access_key and table.secret_key
    }
