"""A storage element: a place that stores files, how it is accessed, and which logical names are where on it.

The rules are those of the trivial file catalogue of paper P3: an ordered list of expressions; the first that fits the whole logical name gives the
path. No database is queried, so a file's location can be computed anywhere and at any time. Whether the file exists there is found out only when it is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from forestay.domain.exceptions.evidence.linear_regex import compiled, problem_of
from forestay.domain.jobs.inputs import wrong_name

MAX_ELEMENTS = 100
MAX_RULES = 100
MAX_PATH = 1_000
_PLACE = re.compile(r"\$([1-9])")


class AccessProtocol(StrEnum):
    """How files on an element are reached."""

    FILE = "file"
    HTTP = "http"
    S3 = "s3"
    ROOT = "root"


@dataclass(frozen=True, slots=True)
class Door:
    """One way to reach an element; it may have several, such as XRootD and HTTP."""

    kind: AccessProtocol
    base: str
    """A folder, or an address without a slash at its end; a file's path comes after it."""

    def place(self, path: str) -> str:
        return f"{self.base}/{path}"


@dataclass(frozen=True, slots=True)
class NameRule:
    """One rule: where the files of these names lie."""

    match: str
    """An expression that the whole name must fit, without `lfn:`."""
    to: str
    """The path on the element; `$1` to `$9` stand for the groups of the expression."""


@dataclass(frozen=True, slots=True)
class StorageElement:
    """One place that keeps files."""

    name: str
    doors: tuple[Door, ...]
    """In the order of preference."""
    rules: tuple[NameRule, ...] = ()
    sites: frozenset[str] = frozenset()
    """The sites near it."""
    tenants: frozenset[str] = frozenset()
    """The tenants that may use it; empty: all."""
    outputs: str = ""
    """The folder on it under which outputs of jobs go; empty: none do."""
    private: bool = False
    """Whether it may be on a private network."""

    def serves(self, tenant: str) -> bool:
        return not self.tenants or tenant in self.tenants

    def may_read(self, tenant: str, path: str) -> bool:
        """Whether a tenant may read the file at a path: each output belongs to one tenant; all other files are open to every tenant that may use the element."""
        if not self.serves(tenant) or wrong_path(path):
            return False
        inside = self.outputs and path.startswith(f"{self.outputs}/")
        return not inside or path.startswith(f"{self.outputs}/{tenant}/")

    def path_of(self, name: str) -> str | None:
        """The path of a logical name by the rules; None if no rule matches."""
        for rule in self.rules:
            # A lone surrogate, which JSON may contain, occurs in no file name.
            match = compiled(rule.match).fullmatch(name.encode("utf-8", "replace").decode())
            if match is not None:
                path = _filled(rule.to, match.groups())
                return None if wrong_path(path) else path
        return None

    def ways(self, protocol: str = "") -> tuple[Door, ...]:
        """Its doors; those with the preferred protocol come first."""
        return tuple(sorted(self.doors, key=lambda door: door.kind.value != protocol))


def _filled(to: str, groups: tuple[str | None, ...]) -> str:
    return _PLACE.sub(lambda at: groups[int(at[1]) - 1] or "", to).strip("/")


def wrong_path(path: str) -> str | None:
    """Why a path is not valid for a file on an element."""
    if len(path) > MAX_PATH:
        return f"a path has at most {MAX_PATH} characters"
    return "expected a path on the element, without . or .." if wrong_name(path) else None


def check_rule(rule: NameRule) -> Iterator[str]:
    """All errors of a rule."""
    if why := problem_of(rule.match):
        yield f"the expression {rule.match!r}: {why}"
        return
    groups = compiled(rule.match).groups
    wanted = max((int(number) for number in _PLACE.findall(rule.to)), default=0)
    if wanted > groups:
        yield f"{rule.to!r} has ${wanted}, and the expression {rule.match!r} has {groups} group(s)"


def check_elements(elements: tuple[StorageElement, ...]) -> Iterator[str]:
    """All errors in a domain's elements."""
    if len(elements) > MAX_ELEMENTS:
        yield f"there are {len(elements)} storage elements; the limit is {MAX_ELEMENTS}"
    names = [element.name for element in elements]
    for name in sorted({other_name for other_name in names if names.count(other_name) > 1}):
        yield f"several storage elements have the name {name}"
    for element in elements:
        if len(element.rules) > MAX_RULES:
            yield f"{element.name}: at most {MAX_RULES} rules are allowed"
        for rule in element.rules:
            yield from (f"{element.name}: {why}" for why in check_rule(rule))
        if element.outputs and wrong_path(element.outputs):
            yield f"{element.name}: outputs must be a folder on the element, without . or .."
