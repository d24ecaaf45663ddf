"""Stores rule sets: each version as its changes, written once; one head document for each set names the newest version.

A version is created by a create-only write under its number, so of two concurrent changes of a set one gets the number. It is in
force when the head names it, by a version-checked write. A writer that dies between the two has changed nothing; the next one finds
its version and advances the head, so no number is ever used twice.

One more document, the mark, names the versions of all sets. Processes with a copy of the rules read only the mark, several times a second.
Everything is stored in documents, so every document store can hold rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import uuid4

from forestay.domain.rules.rule_set import RuleSet, RuleSetId, RuleSetLevel, RuleSetVersion, apply
from forestay.domain.rules.rule_tree import RuleChangeRefused
from forestay.formats.rules.rule_json import set_as_plain, version_as_plain, version_from_plain
from forestay.ports.documents import Document, DocumentStore, StoredDocument
from forestay.ports.errors import Conflict, NotFound, Permanent, Transient
from forestay.ports.jobs.job_store import Conflicted, Written
from forestay.services.shared.document_update import update_document

HEAD = "rules-head"
VERSION = "rules-version"
REFERENCE_INCIDENT = "rules-reference-incident"
MARK = "rules:mark"
MOST_CHANGES = 5_000
"""The most rules that one version may change; a larger change is split."""
AT_ONCE = 200


class ReferenceIncident(NamedTuple):
    """The context for which a rule was written, kept beside the rules for as long as they are."""

    id: str
    type: str
    task: str
    context: Mapping[str, object]


@dataclass(slots=True)
class RuleStore:
    """The service."""

    documents: DocumentStore
    _known: dict[RuleSetId, RuleSet] = field(default_factory=dict)
    """The newest version read of each set: only the changes of the next are read."""

    async def heads(self) -> Mapping[RuleSetId, int]:
        """The newest version of every set; up to a second old."""
        numbers: dict[RuleSetId, int] = {}
        for stored in await self.documents.find(HEAD):
            # The name of a head identifies its set, even if its content is broken.
            with suppress(KeyError, ValueError, TypeError):
                rule_set, number = _head(stored)
                numbers[rule_set] = number
        return numbers

    async def newest(self, rule_set: RuleSetId) -> int:
        """The newest version of a set; 0: it has none."""
        stored = (await self.documents.get([head_name(rule_set)])).get(head_name(rule_set))
        return _head(stored)[1] if stored is not None else 0

    async def load(self, rule_set: RuleSetId, version: int | None = None) -> RuleSet:
        """A set at a version, or at its newest. `NotFound` for a version that does not exist."""
        newest = await self.newest(rule_set)
        wanted = newest if version is None else version
        if not 0 <= wanted <= newest:
            raise NotFound(f"{rule_set} has no version {wanted}; its newest is {newest}")
        known = self._known.get(rule_set)
        current = known if known is not None and known.version <= wanted else RuleSet(rule_set)
        while current.version < wanted:
            upto = min(wanted, current.version + AT_ONCE)
            for rule_set_version in await self.versions(rule_set, current.version + 1, upto):
                later = apply(current, rule_set_version)
                if isinstance(later, RuleChangeRefused):
                    raise Permanent(f"{rule_set}: {later.reason}")
                current = later
        if known is None or current.version > known.version:
            self._known[rule_set] = current
        return current

    async def versions(self, rule_set: RuleSetId, first: int, last: int) -> Sequence[RuleSetVersion]:
        """Some versions in order, each as its changes."""
        names = [version_name(rule_set, number) for number in range(first, last + 1)]
        stored_documents = await self.documents.get(names)
        missing = [name for name in names if name not in stored_documents]
        if missing:
            raise Transient(f"{missing[0]} cannot be read")
        return [version_from_plain(stored_documents[name].document.body) for name in names]

    async def store(self, version: RuleSetVersion) -> None:
        """Put a version in force. `Conflict` if its number was taken: read the set again."""
        if len(version.changes) > MOST_CHANGES:
            raise Permanent(f"a version changes at most {MOST_CHANGES} rules; this one changes {len(version.changes)}")
        rule_set, number = version.rule_set, version.number
        name, token = version_name(rule_set, number), uuid4().hex
        if number != await self.newest(rule_set) + 1:
            raise Conflict(f"{rule_set} has changed; read it again")
        body = {**version_as_plain(version), "token": token}
        (result,) = await self.documents.put([(Document(name, rule_set.tenant, VERSION, body), None)])
        if not isinstance(result, Written):
            stored = (await self.documents.get([name])).get(name)
            if stored is None:
                raise Transient(f"{name} may not be stored")
            if stored.document.body.get("token") != token:
                # Its writer may have died: no writer gets past this number before the head names it.
                await self._move_head(rule_set, number)
                raise Conflict(f"{rule_set} has changed; read it again")
        await self._move_head(rule_set, number)

    async def _move_head(self, rule_set: RuleSetId, number: int) -> None:
        name = head_name(rule_set)
        head = Document(name, rule_set.tenant, HEAD, {**set_as_plain(rule_set), "version": number})

        def changed(stored: StoredDocument | None) -> tuple[Document | None, None]:
            return None if stored is not None and _head(stored)[1] >= number else head, None

        unsure = f"the head of {rule_set} could not be written"
        await update_document(self.documents, name, changed, unsure=unsure)
        await self._set_mark(rule_set, number)

    async def _set_mark(self, rule_set: RuleSetId, number: int) -> None:
        key = head_name(rule_set)

        def changed(stored: StoredDocument | None) -> tuple[Document | None, None]:
            named = dict(_named(stored))
            if named.get(key, 0) >= number:
                return None, None
            return Document(MARK, "", "rules-mark", {"heads": {**named, key: number}}), None

        unsure = "the version mark of the rules could not be stored"
        await update_document(self.documents, MARK, changed, unsure=unsure)

    async def mark(self) -> StoredDocument | None:
        """The mark, which names the versions of all sets; realtime."""
        return (await self.documents.get([MARK])).get(MARK)

    # ReferenceIncidents

    async def keep_reference_incident(self, tenant: str, reference_incident: ReferenceIncident) -> None:
        """Store a reference incident; the first one of an id is kept."""
        body = {
            "type": reference_incident.type,
            "task": reference_incident.task,
            "context": dict(reference_incident.context),
        }
        document = Document(
            reference_incident_name(tenant, reference_incident.id),
            tenant,
            REFERENCE_INCIDENT,
            {"id": reference_incident.id, **body},
        )
        (result,) = await self.documents.put([(document, None)])
        if not isinstance(result, Written | Conflicted):
            raise Transient(f"reference incident {reference_incident.id} may not be stored")

    async def reference_incidents(self, tenant: str, ids: Sequence[str]) -> Mapping[str, ReferenceIncident]:
        """Reference incidents by their ids; missing ones are left out."""
        kept: dict[str, ReferenceIncident] = {}
        for start in range(0, len(ids), AT_ONCE):
            names = [reference_incident_name(tenant, identifier) for identifier in ids[start : start + AT_ONCE]]
            for stored in (await self.documents.get(names)).values():
                body = stored.document.body
                incident = ReferenceIncident(str(body["id"]), str(body["type"]), str(body["task"]), body["context"])  # type: ignore[arg-type]
                kept[incident.id] = incident
        return kept


def head_name(rule_set: RuleSetId) -> str:
    return f"rules:{rule_set.tenant}:{rule_set.level}:{rule_set.name}"


def version_name(rule_set: RuleSetId, number: int) -> str:
    return f"{head_name(rule_set)}@{number}"


def reference_incident_name(tenant: str, name: str) -> str:
    return f"reference_incident:{tenant}:{name}"


def set_named(head: str) -> RuleSetId:
    """The set whose head has this name."""
    _, tenant, level, name = head.split(":", 3)
    return RuleSetId(tenant, RuleSetLevel(level), name)


def heads_in(mark: StoredDocument | None) -> Mapping[RuleSetId, int]:
    """The versions that a mark names."""
    return {set_named(name): number for name, number in _named(mark).items()}


def _named(mark: StoredDocument | None) -> Mapping[str, int]:
    return mark.document.body["heads"] if mark is not None else {}  # type: ignore[return-value]


def _head(stored: StoredDocument) -> tuple[RuleSetId, int]:
    body = stored.document.body
    return RuleSetId(str(body["tenant"]), RuleSetLevel(str(body["level"])), str(body["name"])), int(
        str(body["version"])
    )
