"""Stores rule sets, and keeps the copy of them with which a process decides.

Each version of a set is stored as its changes, written once; one head document for each set names the newest version. A version is created by a create-only write under its number, so of two
concurrent changes of a set one gets the number. It is in force when the head names it, by a version-checked write. A writer that dies between the two has changed nothing; the next one finds
its version and advances the head, so no number is ever used twice.

One more document, the mark, names the versions of all sets. Every process that evaluates rules has a copy of all, at most half a second old, and reads only the mark, several times a second; the
changes of a new version are read, its conditions are compiled, and then the new set replaces the old one: evaluations never wait.

Everything is stored in documents, so every document store can hold rules.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import uuid4

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.rules.condition import Evaluate
from forestay.domain.rules.context import Context
from forestay.domain.rules.rule_index import IndexedSet, RuleSetIndex, TreeIndex, decide_quickly
from forestay.domain.rules.rule_set import (
    RuleChange,
    RuleSet,
    RuleSetId,
    RuleSetLevel,
    RuleSetVersion,
    Ruling,
    TreeKey,
    apply,
    asked_at,
    decide,
    in_order,
    keys_for,
)
from forestay.domain.rules.rule_tree import RuleChangeRefused, RuleState, RuleTree
from forestay.formats.rules.rule_json import set_as_plain, version_as_plain, version_from_plain
from forestay.ports.documents import Document, DocumentStore, StoredDocument
from forestay.ports.errors import Conflict, NotFound, Permanent, PortError, Transient
from forestay.ports.jobs.job_store import Conflicted, Written
from forestay.ports.jobs.job_store import Version as DocumentVersion
from forestay.ports.rules.conditions import Conditions
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


DOMAIN = "site"
"""The name of a domain's own rule set."""
THOROUGH = 75
"""After this many refreshes all heads are searched: this finds one whose writer died before it set the mark."""
COMPILED_AT_ONCE = 4
"""Conditions that are compiled between two turns of the event loop, which takes about a millisecond."""
FEW = 100
"""Up to this many versions are applied one by one."""
MANY = 1_000
_EMPTY = RuleTree()


class Rulings(NamedTuple):
    """The decisions of the active rules, which may act; and those with shadow rules included, where these differ."""

    active: Ruling
    shadow: Ruling | None


@dataclass(slots=True)
class RuleCache:
    """The service. `run` keeps it fresh."""

    rules: RuleStore
    conditions: Conditions
    every: float = 0.4
    monotonic: Callable[[], float] = time.monotonic
    looks: int = 0
    taken_over: int = 0
    """Counts the versions that the copy has applied, for callers that wait for new rules."""
    _sets: dict[RuleSetId, IndexedSet] = field(default_factory=dict)
    _set_indexes: dict[tuple[str, str | None], RuleSetIndex] = field(default_factory=dict)
    """By tenant and flow, the flow's own set; by tenant and no flow, the domain's set and the packs, which apply to every flow."""
    _unreadable: dict[RuleSetId, str] = field(default_factory=dict)
    """Sets whose newest version cannot be read, and why."""
    _mark: DocumentVersion | None = None
    _fresh: float | None = None
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def age(self) -> float:
        """Seconds since the copy was last known to be complete; infinite before that."""
        return float("inf") if self._fresh is None else self.monotonic() - self._fresh

    async def run(self) -> None:
        """Keep the copy fresh. While the store does not answer, the last known rules apply."""
        while True:
            with suppress(PortError):
                await self.refresh()
            await asyncio.sleep(self.every)

    async def refresh(self) -> None:
        """Apply the changes since the last time."""
        async with self._reading:
            began = self.monotonic()
            mark = await self.rules.mark()
            version = mark.version if mark is not None else None
            thorough = self._fresh is None or self.looks % THOROUGH == 0
            self.looks += 1
            if version != self._mark or thorough:
                heads = dict(heads_in(mark))
                if thorough:
                    for rule_set, number in (await self.rules.heads()).items():
                        heads[rule_set] = max(number, heads.get(rule_set, 0))
                for rule_set, number in heads.items():
                    known = self._sets.get(rule_set)
                    if known is None or known.rule_set.version < number or rule_set in self._unreadable:
                        await self._take_over_or_note(rule_set, number)
                self._mark = version
            self._fresh = began

    async def _take_over_or_note(self, name: RuleSetId, number: int) -> None:
        """Apply a version, or note why it cannot be read: an unreadable set affects only the decisions that use it."""
        try:
            await self._take_over(name, number)
            self._unreadable.pop(name, None)
        except Transient:
            raise
        except Exception as error:
            self._unreadable[name] = f"{type(error).__name__}: {error}"

    async def _take_over(self, name: RuleSetId, number: int) -> None:
        known = self._sets.get(name)
        set_index = self._set_indexes.setdefault(_seat_of(name), RuleSetIndex())
        if known is None or number - known.rule_set.version > FEW:
            later = await self.rules.load(name, number)
            ready = await self.indexed(later)
            for key, index in ready.indexes.items():
                await _beside(set_index.learn(name, key, index))
            if len(later) >= MANY:
                # The rules are long-lived: scanning them in every garbage collection would block the process for a tenth of a second.
                gc.freeze()
        else:
            ready, later = known, known.rule_set
            for version in await self.rules.versions(name, later.version + 1, number):
                next_ = apply(later, version)
                if isinstance(next_, RuleChangeRefused):
                    raise Permanent(f"{name}: {next_.reason}")
                later = next_
                ready = await self._followed(ready, later, version.changes, set_index)
        self._sets[name] = ready
        self.taken_over += 1
        if name.level is not RuleSetLevel.DOMAIN or name.name == DOMAIN:
            seated = [*(indexed_set for indexed_set in set_index.sets if indexed_set.rule_set.id != name), ready]
            set_index.seat(sorted(seated, key=lambda indexed_set: asked_at(indexed_set.rule_set.id)))

    async def indexed(self, rule_set: RuleSet) -> IndexedSet:
        """Prepare any set for evaluation, in slices; it is not kept in the copy."""
        ready = IndexedSet(RuleSet(rule_set.id), self._compiles)
        for key, tree in rule_set.trees.items():
            ready.indexes[key] = await self._built(tree)
        ready.rule_set = rule_set
        ready.shadowed = any(tree.shadowed for tree in rule_set.trees.values())
        return ready

    async def _built(self, tree: RuleTree) -> TreeIndex:
        for place, rule in enumerate(tree.rules.values()):
            self._compiles(rule.condition)
            if place % COMPILED_AT_ONCE == COMPILED_AT_ONCE - 1:
                await asyncio.sleep(0)
        index = TreeIndex(_EMPTY, self._compiles)
        await _beside(index.build(tree))
        return index

    async def _followed(
        self, known: IndexedSet, later: RuleSet, changes: Sequence[RuleChange], set_index: RuleSetIndex
    ) -> IndexedSet:
        for change in changes:
            if change.after is not None:
                self._compiles(change.after.condition)
        by_key: dict[TreeKey, list[RuleChange]] = {}
        for change in changes:
            by_key.setdefault(change.key, []).append(change)
        built = {
            key: await self._built(later.trees[key])
            for key, mine in by_key.items()
            if key in later.trees and (key not in known.indexes or not TreeIndex.can_follow(mine))
        }
        for key, index in built.items():
            await _beside(set_index.learn(later.id, key, index))
        # No await from here on: no decision must mix old and new trees.
        for key, mine in by_key.items():
            if key not in later.trees:
                known.indexes.pop(key, None)
            elif key in built:
                known.indexes[key] = built[key]
            else:
                known.indexes[key].follow(later.trees[key], mine)
                for _ in set_index.learn(later.id, key, known.indexes[key]):
                    pass
        known.rule_set = later
        if any(change.after is not None and change.after.state is RuleState.SHADOW for change in changes):
            known.shadowed = True
        elif known.shadowed:
            known.shadowed = any(tree.shadowed for tree in later.trees.values())
        set_index.seat(set_index.sets)
        return known

    def _compiles(self, text: str) -> bool:
        return not self.conditions.compile(text)

    def known(self, rule_set: RuleSetId) -> RuleSet:
        """A set in the copy; an empty one where there is none."""
        known = self._sets.get(rule_set)
        return known.rule_set if known is not None else RuleSet(rule_set)

    def sets_of(self, tenant: str) -> Sequence[RuleSet]:
        """Every set of a tenant."""
        return in_order(
            indexed_set.rule_set for indexed_set in self._sets.values() if indexed_set.rule_set.id.tenant == tenant
        )

    def sets_for(self, tenant: str, flow: str) -> tuple[RuleSet, ...]:
        """The sets that are evaluated for an exception of a flow: the flow's, the domain's, the packs'. `flow` is its name."""
        return tuple(indexed_set.rule_set for indexed_set in self._asked(tenant, flow))

    def _asked(self, tenant: str, flow: str) -> tuple[IndexedSet, ...]:
        return tuple(indexed_set for set_index in self._panels_for(tenant, flow) for indexed_set in set_index.sets)

    def _panels_for(self, tenant: str, flow: str) -> list[RuleSetIndex]:
        indexes = (self._set_indexes.get((tenant, flow)), self._set_indexes.get((tenant, None)))
        return [index for index in indexes if index is not None]

    def has_tree(self, tenant: str, flow: str, type_: ExceptionType, task: str, *, own: bool = False) -> bool:
        """Whether any tree would be evaluated for an exception; with ``own``, a tree for this task itself."""
        keys = (TreeKey(type_, task),) if own else keys_for(type_, task)
        return any(key in indexed_set.indexes for indexed_set in self._asked(tenant, flow) for key in keys)

    def decide(self, tenant: str, flow: str, type_: ExceptionType, task: str, context: Context) -> Rulings:
        """The decision of the rules on an exception. `Transient` before the first refresh, `Permanent` if one of the sets cannot be read: part of the rules must not decide."""
        if self._fresh is None:
            raise Transient("the rules are not loaded yet")
        for name, why in self._unreadable.items():
            if _seat_of(name) in ((tenant, flow), (tenant, None)):
                raise Permanent(f"the rules of {name} cannot be read: {why}")
        evaluate = self.conditions.over(context)
        set_indexes = self._panels_for(tenant, flow)
        active = decide_quickly(set_indexes, type_, task, context, evaluate)
        if not any(set_index.shadowed for set_index in set_indexes):
            return Rulings(active, None)
        return Rulings(
            active, _differing(active, decide_quickly(set_indexes, type_, task, context, evaluate, shadow=True))
        )


def _seat_of(name: RuleSetId) -> tuple[str, str | None]:
    """The index to which a set belongs."""
    return name.tenant, name.name if name.level is RuleSetLevel.FLOW else None


async def _beside(steps: Iterator[None]) -> None:
    """Do work in slices, so that other tasks run in between."""
    for _ in steps:
        await asyncio.sleep(0)


def rulings(sets: Sequence[RuleSet], type_: ExceptionType, task: str, evaluate: Evaluate) -> Rulings:
    """The decisions of any sets, for instance of another version: of the active rules, and including shadow rules where that differs."""
    active = decide(sets, type_, task, evaluate)
    return Rulings(active, _differing(active, decide(sets, type_, task, evaluate, shadow=True)))


def _differing(active: Ruling, shadow: Ruling) -> Ruling | None:
    same = (shadow.verdict, shadow.rule, shadow.flagged) == (active.verdict, active.rule, active.flagged)
    return None if same else shadow
