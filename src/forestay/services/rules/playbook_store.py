"""Stores playbooks by name, for the rules of all rule sets: each content is a version that is kept, and the name refers to the newest.

A playbook that a rule concludes by name is looked up when the rule decides, at most half a second old, and the decision contains the steps themselves: later
changes do not affect earlier decisions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import orjson

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.flows.definition.flow_problem import FlowProblem
from forestay.domain.playbooks.action import worklets_of
from forestay.domain.playbooks.playbook import (
    Playbook,
    playbook_as_plain,
    playbook_from_plain,
    step_from_plain,
    version_of,
)
from forestay.domain.playbooks.playbook_check import check_playbook
from forestay.domain.rules.rule_tree import Conclusion
from forestay.ports.clock import Clock
from forestay.ports.documents import DocumentStore
from forestay.ports.errors import NotFound
from forestay.services.flows.flow_store import FlowStore
from forestay.services.shared.versioned_documents import ListedVersion, VersionedDocuments, VersionedText

KIND = "playbook"
MAX_PLAYBOOK = 128 * 1024
"""The most bytes of a playbook's plain form as JSON, including the decision that contains it."""
FRESH = 0.5
"""Seconds for which a looked-up name is cached."""
MOST_READ = 10_000
"""The most conclusions in place that are cached."""
IN_PLACE = "in-place"
"""The name of a playbook whose steps are written into a rule."""


class StoredPlaybook(NamedTuple):
    """A playbook as stored."""

    playbook: Playbook
    version: str
    by: str
    at: int
    versions: tuple[ListedVersion, ...] = ()
    """Newest first; only set in the newest version itself."""


@dataclass(slots=True)
class PlaybookStore:
    """The service."""

    documents: DocumentStore
    flows: FlowStore
    clock: Clock
    retry_policies: Container[str] | None = None
    """The names of the existing retry policies; None: any name is accepted."""
    monotonic: Callable[[], float] = time.monotonic
    _seen: dict[tuple[str, str], tuple[float, StoredPlaybook | None]] = field(default_factory=dict)
    _read: dict[tuple[int, ExceptionType], tuple[Conclusion, Playbook | str]] = field(default_factory=dict)
    """Conclusions in place, read and checked once; by the identity of the conclusion, which is kept beside it and so remains unique."""

    async def problems(self, tenant: str, playbook: Playbook, kind: ExceptionType | None = None) -> list[FlowProblem]:
        """All problems of a playbook, including worklets and retry policies that do not exist."""
        known: set[str] = set()
        for worklet in (other_worklet for step in playbook.steps for other_worklet in worklets_of(step.do)):
            try:
                await self.flows.plan(tenant, worklet.flow)
            except NotFound:
                continue
            known.add(worklet.flow)
        return check_playbook(playbook, kind, worklets=known, retry_policies=self.retry_policies)

    async def put(self, tenant: str, playbook: Playbook, *, by: str) -> StoredPlaybook:
        """Store a checked playbook; the same content again is the same version."""
        text = orjson.dumps(playbook_as_plain(playbook)).decode()
        stored = await self._versioned.put(tenant, playbook.name, text, version=version_of(playbook), by=by)
        self._seen.pop((tenant, playbook.name), None)
        return _kept(stored)

    @property
    def _versioned(self) -> VersionedDocuments:
        return VersionedDocuments(self.documents, self.clock, KIND, MAX_PLAYBOOK)

    async def get(self, tenant: str, name: str, version: str = "") -> StoredPlaybook:
        """A playbook at its newest or a given version; `NotFound`."""
        return _kept(await self._versioned.get(tenant, name, version))

    async def all(self, tenant: str) -> Sequence[StoredPlaybook]:
        """Every playbook of a tenant, by name; up to a second old."""
        return [_kept(stored) for stored in await self._versioned.all(tenant)]

    async def concluded(self, tenant: str, conclusion: Conclusion | None, kind: ExceptionType) -> Playbook | str:
        """The playbook that a rule concludes, by its name or by its steps; or a text why it cannot be carried out. `Transient` if the store does not answer."""
        if conclusion is None:
            return concluded_in_place(None, kind)
        if not conclusion.playbook:
            return self._in_place(conclusion, kind)
        kept = await self._look_up(tenant, conclusion.playbook)
        if kept is None:
            return f"there is no playbook {conclusion.playbook!r}; store it, or write its steps into the rule"
        return _fitting(kept.playbook, kind, self.retry_policies, f"the playbook {kept.playbook.name}")

    def _in_place(self, conclusion: Conclusion, kind: ExceptionType) -> Playbook | str:
        known = self._read.get((id(conclusion), kind))
        if known is None:
            if len(self._read) >= MOST_READ:
                self._read.clear()
            known = self._read[id(conclusion), kind] = (
                conclusion,
                concluded_in_place(conclusion, kind, self.retry_policies),
            )
        return known[1]

    async def _look_up(self, tenant: str, name: str) -> StoredPlaybook | None:
        at, playbook = self._seen.get((tenant, name), (float("-inf"), None))
        began = self.monotonic()
        if began - at > FRESH:
            stored = await self._versioned.find(tenant, name)
            playbook = _kept(stored) if stored is not None else None
            self._seen[tenant, name] = (began, playbook)
        return playbook


def concluded_in_place(
    conclusion: Conclusion | None, kind: ExceptionType, retry_policies: Container[str] | None = None
) -> Playbook | str:
    """The playbook whose steps are written into a rule, or a text why it cannot be carried out."""
    if conclusion is None or not conclusion.steps:
        return f"the playbook {conclusion.playbook if conclusion else ''!r} is not known here; write its steps into the rule"
    try:
        playbook = Playbook(IN_PLACE, tuple(step_from_plain(step) for step in conclusion.steps))
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        return f"the rule's steps cannot be read: {error}"
    return _fitting(playbook, kind, retry_policies, "the rule's playbook")


def _fitting(
    playbook: Playbook, kind: ExceptionType, retry_policies: Container[str] | None, whose: str
) -> Playbook | str:
    wrong = [
        f"{problem.where}: {problem.message}"
        for problem in check_playbook(playbook, kind, retry_policies=retry_policies)
    ]
    return f"{whose} is not valid for {kind}: {'; '.join(wrong[:3])}" if wrong else playbook


def _kept(stored: VersionedText) -> StoredPlaybook:
    playbook = playbook_from_plain(orjson.loads(stored.text))
    return StoredPlaybook(playbook, stored.version, stored.by, stored.at, stored.versions)
