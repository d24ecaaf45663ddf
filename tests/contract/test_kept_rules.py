"""Rule sets on every store: versions are made once, heads move on, and copies follow."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.contract.examples import ODD_TEXTS
from tests.contract.room import Stores

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.rules.rule_set import (
    RuleSet,
    RuleSetId,
    RuleSetLevel,
    RuleSetVersion,
    TreeKey,
    diff,
    with_tree,
)
from forestay.domain.rules.rule_tree import Conclusion, Rule, RuleTree, add, walk
from forestay.ports.documents import Document
from forestay.ports.errors import Conflict, NotFound, Transient
from forestay.services.rules.rule_store import VERSION, ReferenceIncident, RuleStore, head_name, heads_in, version_name

OpenAnother = Callable[[], Awaitable[Stores]]

DEFAULT_POLICY = RuleSetId("alpha", RuleSetLevel.DOMAIN, "site")
KEY = TreeKey(ExceptionType.ABORT, "*")


def grown(rule_set: RuleSet, name: str, words: str = "") -> tuple[RuleSet, RuleSetVersion]:
    tree = rule_set.tree(KEY)
    rule = Rule(
        name,
        f"cause == '{name}'",
        Conclusion(steps=({"action": "hold"},)),
        reference_incident=name,
        author="ann",
        description=words,
    )
    later = add(tree, rule, walk(tree, lambda _: False, shadow=True))
    assert isinstance(later, RuleTree)
    new = with_tree(rule_set, KEY, later)
    return new, RuleSetVersion(rule_set.id, rule_set.version + 1, diff(rule_set, new), "ann", 7, words)


async def test_versions_are_read_back_whole(stores: Stores, another: OpenAnother) -> None:
    rules, current = RuleStore(stores.documents), RuleSet(DEFAULT_POLICY)
    assert await rules.load(DEFAULT_POLICY) == current
    for place, words in enumerate(ODD_TEXTS[:6]):
        current, version = grown(current, f"r{place}", words)
        await rules.store(version)
    other = RuleStore((await another()).documents)
    for reader in (rules, other):
        assert diff(await reader.load(DEFAULT_POLICY), current) == ()
        third = await reader.load(DEFAULT_POLICY, 3)
        assert (third.version, len(third)) == (3, 3)
        assert await reader.newest(DEFAULT_POLICY) == 6
    assert [version.note for version in await other.versions(DEFAULT_POLICY, 1, 6)] == list(ODD_TEXTS[:6])
    assert heads_in(await other.mark()) == {DEFAULT_POLICY: 6}
    await stores.jobs.refresh()
    assert await other.heads() == {DEFAULT_POLICY: 6}
    with pytest.raises(NotFound):
        await other.load(DEFAULT_POLICY, 7)


async def test_of_many_who_make_the_same_version_one_does(stores: Stores, another: OpenAnother) -> None:
    writers = [RuleStore((await another()).documents) for _ in range(6)]
    attempts = [grown(RuleSet(DEFAULT_POLICY), f"r{place}")[1] for place in range(6)]
    results = await asyncio.gather(
        *(writer.store(version) for writer, version in zip(writers, attempts, strict=True)), return_exceptions=True
    )
    won = [place for place, result in enumerate(results) if result is None]
    assert len(won) == 1
    assert all(isinstance(result, Conflict) for place, result in enumerate(results) if place not in won)
    kept = await RuleStore(stores.documents).load(DEFAULT_POLICY)
    assert list(kept.tree(KEY).rules) == ["root", f"r{won[0]}"]


async def test_a_version_whose_writer_died_is_put_in_force_by_the_next(stores: Stores) -> None:
    rules = RuleStore(stores.documents)
    _, version = grown(RuleSet(DEFAULT_POLICY), "r1")
    body = {
        "rule_set": {"tenant": "alpha", "level": "domain", "name": "site"},
        "number": 1,
        "by": "dead",
        "at": 1,
        "changes": [],
    }
    await stores.documents.put([(Document(version_name(DEFAULT_POLICY, 1), "alpha", VERSION, body), None)])
    assert await rules.newest(DEFAULT_POLICY) == 0
    with pytest.raises(Conflict):
        await rules.store(version)
    assert await rules.newest(DEFAULT_POLICY) == 1
    current = await rules.load(DEFAULT_POLICY)
    _, second = grown(current, "r2")
    await rules.store(second)
    assert await rules.newest(DEFAULT_POLICY) == 2


async def test_reference_incidents_are_kept_as_they_were(stores: Stores) -> None:
    rules = RuleStore(stores.documents)
    first = ReferenceIncident("i1", "abort", "*", {"cause": "memory", "run.data": {"text": ODD_TEXTS[1]}})
    await rules.keep_reference_incident("alpha", first)
    await rules.keep_reference_incident("alpha", first._replace(context={}))
    assert await rules.reference_incidents("alpha", ["i1", "i2"]) == {"i1": first}
    assert await rules.reference_incidents("beta", ["i1"]) == {}


async def test_every_document_names_its_tenant(stores: Stores) -> None:
    rules = RuleStore(stores.documents)
    for tenant in ("alpha", "beta"):
        await rules.store(grown(RuleSet(DEFAULT_POLICY._replace(tenant=tenant)), "r1")[1])
        name = DEFAULT_POLICY._replace(tenant=tenant)
        stored_documents = await stores.documents.get([head_name(name), version_name(name, 1)])
        assert {stored_document.document.tenant for stored_document in stored_documents.values()} == {tenant}


async def test_a_store_that_does_not_answer(unreachable: Stores) -> None:
    with pytest.raises(Transient):
        await RuleStore(unreachable.documents).load(DEFAULT_POLICY)
