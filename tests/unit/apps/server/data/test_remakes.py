"""Lost outputs are made again by a remake of their producer: the whole way through a real server, with a pilot that fails as a test says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from tests.unit.apps.server.asks import read, story, submit_one
from tests.unit.apps.server.running import RunningServer, until
from tests.unit.apps.server.scripted_pilot import ScriptedPilot, own_manifest

from forestay.domain.data.remake import REMAKE
from forestay.ports.errors import Transient
from forestay.services.exceptions.act.output_remaker import KIND


class Chain:
    """Jobs of which each reads the output of the one before; all but the last are done, and their outputs are gone."""

    def __init__(self, server: RunningServer, tenant: str) -> None:
        self.server, self.tenant = server, tenant
        self.ada = server.person("submitter", tenant=tenant)
        self.pilot: ScriptedPilot
        self.started: list[str] = []
        """The jobs that were carried out, in order."""

    @classmethod
    async def of(cls, server: RunningServer, tenant: str, length: int = 3, **first: Any) -> tuple[Chain, list[str]]:
        chain = cls(server, tenant)
        chain.pilot = await ScriptedPilot.register(server, tenant)
        jobs = [await submit_one(chain.ada, **_spec(), **first)]
        for _ in range(length - 1):
            await chain.work()
            jobs.append(await submit_one(chain.ada, **_spec(jobs[-1])))
        return chain, jobs

    async def work(self) -> str:
        """Carry out the next job; its id."""
        claim = await self.pilot.claim_one()
        self.started.append(claim["job"])
        await self.pilot.end(claim, manifest=own_manifest(claim))
        return str(claim["job"])

    async def fail(self, reason: str = "data-missing") -> dict[str, Any]:
        """Claim the next job, and find its input gone."""
        claim = await self.pilot.claim_one()
        facts: dict[str, Any] = {
            "outcome": "failure",
            "reason": reason,
            "exit_code": None,
            "stage": "staging-in",
            "file": "x",
        }
        await self.pilot.end(claim, **facts, error="ENOENT" if reason == "data-missing" else None)
        return claim

    async def look(self) -> None:
        """What a reconciler does every two seconds."""
        await self.server.refresh()
        await self.server.services.components.remaker.look()

    async def incident(self, job: str) -> dict[str, Any]:
        return await incident_of(self.ada, job)


def _spec(producer: str = "") -> dict[str, Any]:
    inputs = [{"name": "x", "source": f"job:{producer}/made"}] if producer else []
    return {"command": ["true"], "outputs": ["made"], "inputs": inputs}


async def incident_of(client: httpx.AsyncClient, job: str) -> dict[str, Any]:
    async def newest() -> dict[str, Any] | None:
        incidents = (await client.get("/v1/incidents", params={"job": job})).json()["incidents"]
        whole = [(await client.get(f"/v1/incidents/{incident['id']}")).json() for incident in incidents]
        return max(whole, key=lambda incident: int(incident["attempt"]), default=None)

    found: dict[str, Any] = await until(newest, "the incident")
    return found


async def test_a_chain_is_made_again_from_the_first_loss(server: RunningServer, tenant: str) -> None:
    chain, (first, second, last) = await Chain.of(server, tenant)
    await chain.fail()
    waiting = await read(chain.ada, last)
    (holder,) = waiting["holders"]
    again = holder.removeprefix("remake:")
    assert (waiting["state"], waiting["failures"]) == ("available", 0), "the job does not pay for it"
    claim = await chain.fail()
    assert (claim["job"], claim["inputs"][0]["source"]) == (again, f"job:{first}/made")
    first_again = await chain.work()
    assert first_again not in (first, second, last)
    await chain.look()
    claim = await chain.pilot.claim_one()
    assert (claim["job"], claim["inputs"][0]["source"]) == (again, f"job:{first_again}/made")
    chain.started.append(again)
    await chain.pilot.end(claim, manifest=own_manifest(claim))
    await chain.look()
    claim = await chain.pilot.claim_one()
    assert (claim["job"], claim["inputs"][0]["file"]) == (last, f"job:{again}/made")
    chain.started.append(last)
    await chain.pilot.end(claim, manifest=own_manifest(claim))
    assert chain.started == [first, second, first_again, again, last], "each as often as it had to"
    assert (await read(chain.ada, last))["state"] == "completed"
    words = {job: [line["words"] for line in await story(chain.ada, job)] for job in (second, again, last)}
    assert f"job {again} makes them again" in words[second][-1]
    assert f"It makes the lost outputs of job {second} again for job {last}" in words[again][0]
    assert any(f"waits for job {again}, which makes made of job {second} again" in line for line in words[last])
    assert any(f"job {again} has committed the lost input" in line for line in words[last])
    incident = await chain.incident(last)
    assert (incident["cause"], incident["state"]) == ("data-missing", "complete")
    assert again in incident["note"]
    assert incident["advice"].startswith("Another try alone does not help: the lost input is made again first")


async def test_the_second_who_needs_it_waits_for_the_same_remake(local: RunningServer, tenant: str) -> None:
    chain, (first, last) = await Chain.of(local, tenant, 2)
    other = await submit_one(chain.ada, **_spec(first))
    await chain.fail("data-corrupt")
    await chain.fail()
    holders = {tuple((await read(chain.ada, job))["holders"]) for job in (last, other)}
    assert len(holders) == 1
    again = await chain.work()
    third = await submit_one(chain.ada, **_spec(first))
    assert (await chain.pilot.claim_one())["inputs"][0]["source"] == f"job:{again}/made", "for who comes later too"
    await chain.look()
    assert {await chain.work(), await chain.work()} == {last, other}
    assert third not in chain.started


class FailsOnce:
    """A part whose store goes away once, at its first write."""

    def __init__(self, part: Any, write: str) -> None:
        self.part, self.breaks, self.failed = part, write, False

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.part, name)
        if name != self.breaks:
            return real

        async def write(changes: Any, *rest: Any, **more: Any) -> Any:
            if self.failed or not changes:
                return await real(changes, *rest, **more)
            self.failed = True
            raise Transient("the store is away")

        return write


@pytest.mark.parametrize("step", ["create", "name", "wait", "hold"])
async def test_whoever_died_in_between_is_followed_by_another(
    local: RunningServer, tenant: str, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """And the remake may have ended by then: nobody is held for ever, and it is made once."""
    parts = local.services.components
    remaker = parts.remaker
    part, attribute, write = {
        "create": (remaker, "submitter", "submit_elements"),
        "name": (remaker, "writer", "write"),
        "wait": (remaker, "documents", "put"),
        "hold": (remaker.data.jobs, "writer", "write"),
    }[step]
    chain, (_, last) = await Chain.of(local, tenant, 2)
    breaking = FailsOnce(getattr(part, attribute), write)
    with monkeypatch.context() as patch:
        patch.setattr(part, attribute, breaking)
        await chain.fail()
        await until(_holds(breaking), "the failure of the store")
    if step != "create":
        await chain.work()
    await chain.look()
    (failed,) = (await parts.store.get([last])).values()
    await parts.pipeline.handle_failures([(failed, "")])
    if step == "create":
        await chain.work()
    await chain.look()
    assert await chain.work() == last
    assert len(chain.started) == 3, "the producer, its remake, the job"
    await chain.look()
    assert not await parts.documents.find(KIND, tenant=tenant), "nobody waits any more"


def _holds(breaking: FailsOnce) -> Callable[[], Awaitable[bool]]:
    async def holds() -> bool:
        return breaking.failed

    return holds


async def test_a_producer_with_external_effects_is_left_to_a_person(local: RunningServer, tenant: str) -> None:
    chain, (_, last) = await Chain.of(local, tenant, 2, effects="external")
    await chain.fail()
    incident = await chain.incident(last)
    assert (incident["state"], (await read(chain.ada, last))["state"]) == ("held", "faulted")
    assert "has external effects, and another run would repeat them; a person must decide" in incident["note"]
    assert await chain.pilot.claim(wait=0.2) == []


async def test_the_output_of_another_owner_is_left_to_a_person(local: RunningServer, tenant: str) -> None:
    chain, (first, _) = await Chain.of(local, tenant, 2)
    await chain.work()
    eve = local.person("submitter", tenant=tenant, subject="eve")
    job = await submit_one(eve, **_spec(first))
    await chain.fail()
    incident = await incident_of(eve, job)
    assert "belongs to ada, who must decide whether it runs again" in incident["note"]


async def test_a_chain_longer_than_the_safeguards_allow_is_held(local: RunningServer, tenant: str) -> None:
    async with local.domain.server(safeguard_depth=1) as server:
        chain, (_, _, last) = await Chain.of(server, tenant)
        await chain.fail()
        claim = await chain.fail()
        incident = await chain.incident(claim["job"])
        assert (incident["state"], incident["note"]) == ("held", "1 actions followed from each other; 1 are allowed")
        assert (await read(chain.ada, last))["holders"] == [f"remake:{claim['job']}"]
        assert await chain.pilot.claim(wait=0.2) == []


async def test_a_remake_that_fails_for_good_brings_its_job_to_a_person(local: RunningServer, tenant: str) -> None:
    chain, (_, last) = await Chain.of(local, tenant, 2)
    await chain.fail()
    claim = await chain.pilot.claim_one()
    await chain.pilot.end(claim, outcome="failure", reason="exit", exit_code=3)
    assert (await read(chain.ada, claim["job"]))["state"] == "failed"
    await chain.look()
    await chain.fail()
    incident = await chain.incident(last)
    assert (incident["attempt"], incident["state"]) == (2, "held")
    assert f"job {claim['job']}, which was to make made of job" in incident["note"]
    assert incident["note"].endswith("again, is failed")


async def test_what_its_producer_never_made_is_not_made_again(local: RunningServer, tenant: str) -> None:
    chain, (first, _) = await Chain.of(local, tenant, 2)
    await chain.work()
    inputs = [{"name": "x", "source": f"job:{first}/other"}]
    job = await submit_one(chain.ada, **_spec() | {"inputs": inputs})
    await chain.fail()
    assert (await read(chain.ada, job))["state"] == "failed"


async def test_a_host_that_lacks_a_file_is_left_before_anything_is_made_again(
    local: RunningServer, tenant: str
) -> None:
    chain, (_, last) = await Chain.of(local, tenant, 2)
    elsewhere = await ScriptedPilot.register(local, tenant, host="node2")
    await chain.fail()
    claim = await elsewhere.claim_one()
    assert claim["job"] == last
    await elsewhere.end(
        claim, outcome="failure", reason="data-missing", exit_code=None, stage="staging-in", file="x", host="node2"
    )
    assert [holder.partition(":")[0] for holder in (await read(chain.ada, last))["holders"]] == [REMAKE]


@pytest.mark.parametrize("reason", ["data-missing", "transfer"])
async def test_a_rule_says_it_too(local: RunningServer, tenant: str, reason: str) -> None:
    """With other steps beside it; and only for what is lost."""
    chain, (_, last) = await Chain.of(local, tenant, 2)
    steps = [{"action": "notify", "text": "made again"}, {"action": "remake"}]
    draft = {
        "type": "abort",
        "condition": f'cause == "{reason}"',
        "conclusion": {"steps": steps},
        "reference_incident": "lost",
        "context": {"cause": reason},
    }
    olga = local.person("operator", "administrator", tenant=tenant, subject="olga")
    made = await olga.post("/v1/rules/domain/site", json=draft)
    assert made.status_code == 200, made.text
    name = made.json()["rule"]
    await olga.post(f"/v1/rules/domain/site/rules/{name}/state", json={"state": "active"})
    await local.services.components.pipeline.decider.rules.refresh()
    await chain.fail(reason)
    incident = await chain.incident(last)
    if reason == "transfer":
        assert incident["state"] == "held"
        assert incident["note"] == "the job did not fail because an input is lost or damaged"
        return
    assert incident["decisions"][-1]["by"].startswith("domain/site#")
    again = await chain.work()
    await chain.look()
    assert await chain.work() == last
    assert again in incident["note"]
