"""Pilots that were enrolled for one owner: whatever is queued, and however it is given, they get no job of another."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sizes import examples
from tests.unit.services.scheduling.test_claim_dispatcher import desk_with, job
from tests.unit.services.scheduling.test_first_claims import JOB, Server

from forestay.domain.jobs.claim import claim
from forestay.domain.jobs.job_document import JobDocument, State
from forestay.domain.jobs.lifecycle import TransitionRefused
from forestay.domain.jobs.resources import Resources
from forestay.domain.jobs.submission import Submission
from forestay.ports.jobs.job_store import Stored
from forestay.services.scheduling.claim_request import ClaimRequest

OWNERS = ["ann", "ann2", "bob", "t/ann", "a"]
EVERYONE = ""
PLENTY = Resources(cpus=64)


@given(st.sampled_from(OWNERS), st.sampled_from([EVERYONE, *OWNERS]))
def test_a_claim_for_another_owner_is_refused_whoever_chose_the_job(owner: str, pilots: str) -> None:
    document = job(owner)
    claimed = claim(document, claim_id="c", pilot="p", host="h", now=document.created, owner=pilots)
    if pilots in (EVERYONE, owner):
        assert isinstance(claimed, JobDocument)
        assert claimed.state is State.RUNNING
    else:
        assert isinstance(claimed, TransitionRefused)


Submitted = st.lists(st.tuples(st.sampled_from(OWNERS), st.integers(-2, 2), st.integers(1, 3)), min_size=1, max_size=20)
Asked = st.lists(st.tuples(st.sampled_from([EVERYONE, *OWNERS]), st.integers(1, 8)), min_size=1, max_size=8)


@settings(max_examples=examples(60), deadline=None)
@given(Submitted, Submitted, Asked)
def test_no_pilot_gets_a_job_of_another_owner(
    queued: list[tuple[str, int, int]], later: list[tuple[str, int, int]], asked: list[tuple[str, int]]
) -> None:
    """Some jobs wait, and some are submitted while the pilots do; a pilot whose owner has a job in the end has one too."""
    server = Server()

    async def story() -> None:
        await server.submit.submit([_submission(*wanted) for wanted in queued], by="ops")
        pilots = [_pilot(server, f"p{place}", *wanted) for place, wanted in enumerate(asked)]
        await asyncio.sleep(4.0)
        for wanted in later:
            await server.submit.submit([_submission(*wanted)], by="ops")
        granted = await asyncio.gather(*pilots)
        given_owners = [stored.document.owner for jobs in granted for stored in jobs]
        left = {owner for owner, _, _ in (*queued, *later)} - set(given_owners)
        for (owner, _), jobs in zip(asked, granted, strict=True):
            assert owner == EVERYONE or all(stored.document.owner == owner for stored in jobs)
            assert owner not in left

    server.run(story)


def _submission(owner: str, priority: int, cpus: int) -> Submission:
    return replace(JOB, owner=owner, priority=priority, resources=Resources(cpus=cpus))


def _pilot(server: Server, name: str, owner: str, most: int) -> asyncio.Task[list[Stored]]:
    return server.actor.spawn(
        server.claims.claim(
            ClaimRequest(pilot=name, host="h", tenant="lab", free=PLENTY, most=most, owner=owner), wait=40.0
        )
    )


def test_jobs_that_are_just_created_go_to_their_owners_pilot_in_the_same_write() -> None:
    server = Server()

    async def story() -> None:
        ann, bob = _pilot(server, "a", "ann", 4), _pilot(server, "b", "bob", 4)
        await asyncio.sleep(2.0)
        await server.submit.submit([_submission("bob", 9, 1), _submission("ann", 0, 1)], by="ops")
        assert [stored.document.owner for stored in await ann] == ["ann"]
        assert [stored.document.owner for stored in await bob] == ["bob"]
        assert server.claims.tally.first == 2

    server.run(story)


async def test_a_pilot_of_an_owner_is_served_although_others_have_more_urgent_jobs(tmp_path: Path) -> None:
    jobs = [*(job("ann", priority=9) for _ in range(100)), job("bob")]
    async with desk_with(tmp_path, jobs) as desk:
        claims = await desk.claim(
            ClaimRequest(pilot="p", host="h", tenant="t", free=PLENTY, most=64, owner="bob"), wait=20
        )
        assert [stored.document.owner for stored in claims] == ["bob"]
