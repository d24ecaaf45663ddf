"""Keeps playbooks by name, for the rules of all rule sets: every content is a version, kept for ever, and the name stands for the newest.

What a rule concludes by a name is looked up when it decides, at most half a second old, and the decision has the steps themselves: what is changed
afterwards changes nothing that was decided before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, cast

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
from forestay.ports.documents import Document, DocumentStore, StoredDocument
from forestay.ports.errors import NotFound, Permanent, Transient
from forestay.ports.jobs.job_store import Written
from forestay.services.flows.flow_store import FlowStore
from forestay.services.shared.document_update import update_document

KIND = "playbook"
VERSION = "playbook-version"
MAX_PLAYBOOK = 128 * 1024
"""Bytes of a playbook's plain form as JSON; with the decision that takes it over."""
MOST_VERSIONS = 100
"""Versions that are listed; older ones can still be read."""
FRESH = 0.5
"""Seconds for which a name that was looked up is believed."""
MOST_READ = 10_000
"""Conclusions in place that are remembered."""
IN_PLACE = "in-place"
"""The name of a playbook whose steps are written into a rule."""


class PlaybookVersion(NamedTuple):
    """A version of a playbook in the list of its versions."""

    version: str
    by: str
    at: int


class StoredPlaybook(NamedTuple):
    """A playbook as it is kept."""

    playbook: Playbook
    version: str
    by: str
    at: int
    versions: tuple[PlaybookVersion, ...] = ()
    """The newest first; only of the newest version itself."""


@dataclass(slots=True)
class PlaybookStore:
    """The service."""

    documents: DocumentStore
    flows: FlowStore
    clock: Clock
    retry_policies: Container[str] | None = None
    """The names of the retry_policies that there are; None: any name is taken to be one."""
    monotonic: Callable[[], float] = time.monotonic
    _seen: dict[tuple[str, str], tuple[float, StoredPlaybook | None]] = field(default_factory=dict)
    _read: dict[tuple[int, ExceptionType], tuple[Conclusion, Playbook | str]] = field(default_factory=dict)
    """What rules conclude in place, read and checked once; by the identity of the conclusion, which is kept beside it and so stays its own."""

    async def problems(self, tenant: str, playbook: Playbook, kind: ExceptionType | None = None) -> list[FlowProblem]:
        """Everything that is wrong with a playbook, the worklets and retry_policies that there are not included."""
        known: set[str] = set()
        for worklet in (other_worklet for step in playbook.steps for other_worklet in worklets_of(step.do)):
            try:
                await self.flows.plan(tenant, worklet.flow)
            except NotFound:
                continue
            known.add(worklet.flow)
        return check_playbook(playbook, kind, worklets=known, retry_policies=self.retry_policies)

    async def put(self, tenant: str, playbook: Playbook, *, by: str) -> StoredPlaybook:
        """Keep a playbook that has passed its check; the same content again is the same version."""
        text = orjson.dumps(playbook_as_plain(playbook))
        if len(text) > MAX_PLAYBOOK:
            raise Permanent(f"the playbook has {len(text)} bytes as JSON; the limit is {MAX_PLAYBOOK}")
        version, now, name = version_of(playbook), self.clock.now(), name_of(tenant, playbook.name)
        body: dict[str, object] = {"playbook": text.decode(), "version": version, "by": by, "at": now}
        await self._keep_version(Document(version_name(tenant, playbook.name, version), tenant, VERSION, body))

        def changed(stored: StoredDocument | None) -> tuple[Document | None, StoredPlaybook]:
            before = _kept(stored) if stored is not None else None
            if before is not None and (before.version, before.playbook) == (version, playbook):
                return None, before
            entries = before.versions if before is not None else ()
            if before is None or before.version != version:
                entries = (PlaybookVersion(version, by, now), *entries)[:MOST_VERSIONS]
            document = Document(name, tenant, KIND, {**body, "versions": [list(version) for version in entries]})
            return document, StoredPlaybook(playbook, version, by, now, entries)

        unsure = "the playbook could not be stored; send it again"
        kept = await update_document(self.documents, name, changed, unsure=unsure)
        self._seen.pop((tenant, playbook.name), None)
        return kept

    async def _keep_version(self, document: Document) -> None:
        (result,) = await self.documents.put([(document, None)])
        if not isinstance(result, Written) and not await self.documents.get([document.id]):
            raise Transient("the version of the playbook may not be stored; send it again")

    async def get(self, tenant: str, name: str, version: str = "") -> StoredPlaybook:
        """A playbook at its newest version or at another one; `NotFound`."""
        wanted = version_name(tenant, name, version) if version else name_of(tenant, name)
        stored = (await self.documents.get([wanted])).get(wanted)
        if stored is None:
            raise NotFound(f"there is no playbook {name}" + (f" of version {version}" if version else ""))
        return _kept(stored)

    async def all(self, tenant: str) -> Sequence[StoredPlaybook]:
        """Every playbook of a tenant, by name; up to a second old."""
        playbooks = [_kept(stored) for stored in await self.documents.find(KIND, tenant=tenant)]
        return sorted(playbooks, key=lambda stored_playbook: stored_playbook.playbook.name)

    async def concluded(self, tenant: str, conclusion: Conclusion | None, kind: ExceptionType) -> Playbook | str:
        """The playbook that a rule concludes, by its name or by its steps; or in words why it cannot be carried out. `Transient` if the store does not answer."""
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
            stored = await self.documents.get([name_of(tenant, name)])
            playbook = _kept(stored[name_of(tenant, name)]) if stored else None
            self._seen[tenant, name] = (began, playbook)
        return playbook


def concluded_in_place(
    conclusion: Conclusion | None, kind: ExceptionType, retry_policies: Container[str] | None = None
) -> Playbook | str:
    """The playbook whose steps are written into a rule, or in words why it cannot be carried out."""
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


def name_of(tenant: str, name: str) -> str:
    return f"playbook:{tenant}:{name}"


def version_name(tenant: str, name: str, version: str) -> str:
    return f"{name_of(tenant, name)}@{version}"


def _kept(stored: StoredDocument) -> StoredPlaybook:
    body = stored.document.body
    listed = cast("Sequence[tuple[str, str, int]]", body.get("versions", ()))
    playbook = playbook_from_plain(orjson.loads(str(body["playbook"])))
    entries = tuple(PlaybookVersion(*fields) for fields in listed)
    return StoredPlaybook(playbook, str(body["version"]), str(body["by"]), int(str(body["at"])), entries)
