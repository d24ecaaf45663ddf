"""Devices, requirements and licences by the HTTP interface, on a real server."""

from __future__ import annotations

from typing import Any

from tests.unit.apps.server.asks import problem, read, submit_one
from tests.unit.apps.server.running import Domain, RunningServer
from tests.unit.apps.server.scripted_pilot import ScriptedPilot

A100 = {"name": "GPU-1", "vendor": "nvidia", "model": "A100", "memory": 40 << 30}


async def test_every_error_of_a_requirement_is_told_with_its_place(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    spec = {"command": ["true"], "requires": 'gpu.modle == "A100" && oss == "el9"'}
    body = problem(await ada.post("/v1/jobs", json={"specification": spec, "jobs": [{}]}), 422)
    details = {(error["at"], error["detail"].split(":")[0], error["detail"].split(":")[1]) for error in body["errors"]}
    assert details == {
        ("body.jobs.0.specification.requires", "1", "4"),
        ("body.jobs.0.specification.requires", "1", "24"),
    }


async def test_a_flow_with_a_wrong_requirement_is_refused(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    text = "forestay: 1\nname: f\ntasks:\n  a:\n    command: [x]\n    requires: cpus + 1\n"
    body = problem(await ada.post("/v1/flows", json={"text": text}), 422)
    assert body["errors"] == [{"at": "tasks.a.requires", "detail": "1:1: a requirement must be bool; this is int"}]


async def test_a_job_that_is_larger_than_every_pilot_says_so(own_domain: Domain, tenant: str) -> None:
    async with own_domain.server() as server:
        ada = server.person("submitter", tenant=tenant)
        job = await submit_one(ada, resources={"memory": 900 << 30})
        assert (await read(ada, job))["waiting"] == "no pilot is connected"
    async with own_domain.server() as server:  # a list of pilots is kept for some seconds
        await ScriptedPilot.register(server, tenant, resources={"cpus": 2, "memory": 24 << 30})
        words = "no pilot is large enough: 900 GiB of memory needed, the nearest has 24 GiB of memory"
        assert (await read(server.person("submitter", tenant=tenant), job))["waiting"] == words


async def test_a_job_waits_for_a_pilot_that_satisfies_it_and_its_devices_are_recorded(
    server: RunningServer, tenant: str
) -> None:
    ada = server.person("submitter", tenant=tenant)
    wanted = 'gpu.model == "A100" && os == "el9"'
    job = await submit_one(ada, requires=wanted)
    other = await ScriptedPilot.register(server, tenant, features={"os": "debian12"})
    assert await other.claim(wait=0.5) == []
    assert (await read(ada, job))["waiting"] == f"no pilot satisfies {wanted}"
    pilot = await ScriptedPilot.register(server, tenant, features={"os": "el9"}, devices=[A100])
    claim = await pilot.claim_one()
    assert claim["specification"]["requires"] == wanted
    assert await pilot.end(claim, devices=["GPU-1"]) == ["committed"]
    shown = await read(ada, job)
    assert (shown["state"], shown["last"]["devices"], shown.get("waiting", "")) == ("completed", ["GPU-1"], "")


async def test_seats_are_counted_over_the_domain(server: RunningServer, tenant: str) -> None:
    ada, stranger = server.person("submitter", tenant=tenant), server.person("administrator", tenant=tenant)
    admin = server.person("administrator", tenant=server.services.components.settings.admin_tenant)
    name = f"lic-{tenant}"[:64]
    assert (await ada.put(f"/v1/licences/{name}", json={"seats": 1})).status_code == 403
    problem(await stranger.put(f"/v1/licences/{name}", json={"seats": 1}), 403)
    assert (await admin.put(f"/v1/licences/{name}", json={"seats": 1})).json()["free"] == 1
    problem(await stranger.delete(f"/v1/licences/{name}"), 403)
    first = await submit_one(ada, licences={name: 1})
    pilot = await ScriptedPilot.register(server, tenant)
    claim = await pilot.claim_one()
    assert claim["job"] == first
    second = await submit_one(ada, licences={name: 1})
    assert await pilot.claim(wait=0.5) == []
    assert (await read(ada, second))["waiting"] == f"1 of licence {name} needed, 0 of 1 free"
    assert await _holders(ada, name) == [first]
    assert (await admin.delete(f"/v1/licences/{name}")).status_code == 503
    assert await pilot.end(claim) == ["committed"]
    assert (await pilot.claim_one())["job"] == second
    assert await _holders(ada, name) == [second]


async def _holders(client: Any, name: str) -> list[str]:
    licences = (await client.get("/v1/licences")).json()["licences"]
    (licence,) = [known for known in licences if known["name"] == name]
    return [holder["job"] for holder in licence["holders"]]
