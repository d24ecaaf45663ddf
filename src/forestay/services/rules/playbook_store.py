"""Keeps exlets by name, for the rules of all rule sets: every content is a version, kept for ever, and the name stands for the newest.

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
from forestay.domain.exlets.exlet import Exlet
from forestay.domain.exlets.exlet_check import check_exlet
from forestay.domain.exlets.exlet_plain import exlet_as_plain, exlet_from_plain, step_from_plain, version_of
from forestay.domain.exlets.primitive import worklets_of
from forestay.domain.flows.definition.flow_problem import FlowProblem
from forestay.domain.rules.rule_tree import Conclusion
from forestay.ports.clock import Clock
from forestay.ports.documents import Document, DocumentStore, StoredDocument
from forestay.ports.errors import NotFound, Permanent, Transient
from forestay.ports.jobs.job_store import Written
from forestay.services.flows.flow_store import FlowStore

KIND = "exlet"
VERSION = "exlet-version"
MAX_EXLET = 128 * 1024
"""Bytes of an exlet's plain form as JSON; with the decision that takes it over."""
MOST_VERSIONS = 100
"""Versions that are listed; older ones can still be read."""
FRESH = 0.5
"""Seconds for which a name that was looked up is believed."""
TRIES = 20
IN_PLACE = "in-place"
"""The name of an exlet whose steps are written into a rule."""


class PlaybookVersion(NamedTuple):
    """A version of an exlet in the list of its versions."""

    version: str
    by: str
    at: int


class StoredPlaybook(NamedTuple):
    """An exlet as it is kept."""

    exlet: Exlet
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
    ladders: Container[str] | None = None
    """The names of the ladders that there are; None: any name is taken to be one."""
    monotonic: Callable[[], float] = time.monotonic
    _seen: dict[tuple[str, str], tuple[float, StoredPlaybook | None]] = field(default_factory=dict)

    async def problems(self, tenant: str, exlet: Exlet, kind: ExceptionType | None = None) -> list[FlowProblem]:
        """Everything that is wrong with an exlet, the worklets and ladders that there are not included."""
        known: set[str] = set()
        for worklet in (one for step in exlet.steps for one in worklets_of(step.do)):
            try:
                await self.flows.plan(tenant, worklet.flow)
            except NotFound:
                continue
            known.add(worklet.flow)
        return check_exlet(exlet, kind, worklets=known, ladders=self.ladders)

    async def put(self, tenant: str, exlet: Exlet, *, by: str) -> StoredPlaybook:
        """Keep an exlet that has passed its check; the same content again is the same version."""
        text = orjson.dumps(exlet_as_plain(exlet))
        if len(text) > MAX_EXLET:
            raise Permanent(f"the exlet has {len(text)} bytes as JSON; the limit is {MAX_EXLET}")
        version, now, name = version_of(exlet), self.clock.now(), name_of(tenant, exlet.name)
        body: dict[str, object] = {"exlet": text.decode(), "version": version, "by": by, "at": now}
        await self._keep_version(Document(version_name(tenant, exlet.name, version), tenant, VERSION, body))
        for _ in range(TRIES):
            stored = (await self.documents.get([name])).get(name)
            before = _kept(stored) if stored is not None else None
            if before is not None and (before.version, before.exlet) == (version, exlet):
                return before
            entries = before.versions if before is not None else ()
            if before is None or before.version != version:
                entries = (PlaybookVersion(version, by, now), *entries)[:MOST_VERSIONS]
            document = Document(name, tenant, KIND, {**body, "versions": [list(one) for one in entries]})
            (result,) = await self.documents.put([(document, stored.version if stored is not None else None)])
            if isinstance(result, Written):
                self._seen.pop((tenant, exlet.name), None)
                return StoredPlaybook(exlet, version, by, now, entries)
        raise Transient("the playbook could not be stored; send it again")

    async def _keep_version(self, document: Document) -> None:
        (result,) = await self.documents.put([(document, None)])
        if not isinstance(result, Written) and not await self.documents.get([document.id]):
            raise Transient("the version of the exlet may not be stored; send it again")

    async def get(self, tenant: str, name: str, version: str = "") -> StoredPlaybook:
        """An exlet at its newest version or at another one; `NotFound`."""
        wanted = version_name(tenant, name, version) if version else name_of(tenant, name)
        stored = (await self.documents.get([wanted])).get(wanted)
        if stored is None:
            raise NotFound(f"there is no exlet {name}" + (f" of version {version}" if version else ""))
        return _kept(stored)

    async def all(self, tenant: str) -> Sequence[StoredPlaybook]:
        """Every exlet of a tenant, by name; up to a second old."""
        found = [_kept(one) for one in await self.documents.find(KIND) if one.document.tenant == tenant]
        return sorted(found, key=lambda one: one.exlet.name)

    async def concluded(self, tenant: str, conclusion: Conclusion | None, kind: ExceptionType) -> Exlet | str:
        """The exlet that a rule concludes, by its name or by its steps; or in words why it cannot be carried out. `Transient` if the store does not answer."""
        if conclusion is None or not conclusion.exlet:
            return concluded_in_place(conclusion, kind, self.ladders)
        kept = await self._look_up(tenant, conclusion.exlet)
        if kept is None:
            return f"there is no exlet {conclusion.exlet!r}; store it, or write its steps into the rule"
        return _fitting(kept.exlet, kind, self.ladders, f"the exlet {kept.exlet.name}")

    async def _look_up(self, tenant: str, name: str) -> StoredPlaybook | None:
        at, found = self._seen.get((tenant, name), (float("-inf"), None))
        began = self.monotonic()
        if began - at > FRESH:
            stored = await self.documents.get([name_of(tenant, name)])
            found = _kept(stored[name_of(tenant, name)]) if stored else None
            self._seen[tenant, name] = (began, found)
        return found


def concluded_in_place(
    conclusion: Conclusion | None, kind: ExceptionType, ladders: Container[str] | None = None
) -> Exlet | str:
    """The exlet whose steps are written into a rule, or in words why it cannot be carried out."""
    if conclusion is None or not conclusion.steps:
        return f"the exlet {conclusion.exlet if conclusion else ''!r} is not known here; write its steps into the rule"
    try:
        exlet = Exlet(IN_PLACE, tuple(step_from_plain(one) for one in conclusion.steps))
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        return f"the rule's steps cannot be read: {error}"
    return _fitting(exlet, kind, ladders, "the rule's exlet")


def _fitting(exlet: Exlet, kind: ExceptionType, ladders: Container[str] | None, whose: str) -> Exlet | str:
    wrong = [f"{one.where}: {one.message}" for one in check_exlet(exlet, kind, ladders=ladders)]
    return f"{whose} is not valid for {kind}: {'; '.join(wrong[:3])}" if wrong else exlet


def name_of(tenant: str, name: str) -> str:
    return f"exlet:{tenant}:{name}"


def version_name(tenant: str, name: str, version: str) -> str:
    return f"{name_of(tenant, name)}@{version}"


def _kept(stored: StoredDocument) -> StoredPlaybook:
    body = stored.document.body
    listed = cast("Sequence[tuple[str, str, int]]", body.get("versions", ()))
    exlet = exlet_from_plain(orjson.loads(str(body["exlet"])))
    entries = tuple(PlaybookVersion(*one) for one in listed)
    return StoredPlaybook(exlet, str(body["version"]), str(body["by"]), int(str(body["at"])), entries)
