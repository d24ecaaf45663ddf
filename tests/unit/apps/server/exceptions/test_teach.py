"""Teaching over HTTP: an error gets a cause by a pattern, what waits is judged again, and it stays in its tenant."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from tests.unit.apps.server.asks import problem, submit
from tests.unit.apps.server.running import RunningServer, until
from tests.unit.apps.server.scripted_pilot import ScriptedPilot

from forestay.domain.exceptions.causes.cause import Cause
from forestay.domain.exceptions.causes.taught_pattern import taught_pattern

QUUX = "starting\nslot {}: quux daemon failed on node{} after {} s\n"
EXPRESSION = r"(?i)slot \S+: quux daemon failed on \S+ after"
ZERO = "read 17 lines\nZeroDivisionError: division by zero\n"

pytestmark = pytest.mark.every_store


async def _fail(server: RunningServer, tenant: str, logs: list[str], **more: Any) -> list[str]:
    person = server.person("submitter", tenant=tenant, subject="ada")
    jobs = await submit(person, *[{}] * len(logs), max_attempts=1, when_exhausted="hold", **more)
    pilot = await ScriptedPilot.register(server, tenant)
    for log_tail in logs:
        await pilot.end(await pilot.claim_one(), outcome="failure", exit_code=3, log_tail=log_tail)
    return [str(job) for job in jobs]


async def _errors(client: httpx.AsyncClient, **causes: int) -> list[dict[str, Any]]:
    """The errors of the inbox, the quux first, when so many failures of each cause are in it."""

    async def there() -> list[dict[str, Any]] | None:
        groups = (await client.get("/v1/inbox")).json()["groups"]
        counts = {group["cause"].replace("-", "_"): group["count"] for group in groups}
        return sorted(groups, key=lambda group: "quux" not in group["title"]) if counts == causes else None

    found: list[dict[str, Any]] = await until(there, f"{causes} in the inbox")
    return found


async def _known(client: httpx.AsyncClient, cause: str, many: int) -> list[dict[str, Any]]:
    async def there() -> list[dict[str, Any]] | None:
        incidents = (await client.get("/v1/incidents", params={"cause": cause})).json()["incidents"]
        return incidents if len(incidents) == many else None

    found: list[dict[str, Any]] = await until(there, f"{many} {cause} failures")
    return found


async def test_a_taught_error_is_judged_again_and_the_next_failure_of_it_is_known(
    server: RunningServer, tenant: str
) -> None:
    await _fail(server, tenant, [QUUX.format(number, number, 10.5 + number) for number in range(3)])
    await _fail(server, tenant, [ZERO])
    olga = server.person("operator", tenant=tenant, subject="olga")
    error, _ = await _errors(olga, unknown=3, code=1)
    place = f"/v1/errors/{error['fingerprint']}/teach"
    wish = {"cause": "node", "retry": "elsewhere", "reason": "the quux daemon dies with its node"}
    tried = (await olga.post(place, json={**wish, "dry_run": True})).json()
    assert tried["pattern"]["pattern"] == EXPRESSION
    assert (tried["pattern"]["cause"], tried["pattern"]["retry"], tried["members"]) == ("node", "elsewhere", 3)
    assert tried["pattern"]["examples"][0].startswith("slot ")
    assert (tried["errors"], tried["failures"], tried["whole"], tried["written"]) == (2, 4, True, False)
    assert (tried["problems"], tried["wrong"], tried["examples"], tried["unknown"]) == ([], [], [], [])
    assert (await olga.get("/v1/taught")).json() == {"version": 0, "patterns": []}
    taught = (await olga.post(place, json=wish)).json()
    assert (taught["written"], taught["version"], taught["judged"], taught["judged_whole"]) == (True, 1, 3, True)
    assert tried["now"] == ""
    # The node is to blame, so they are tried again at nobody's cost, and not on the host that they failed on.
    incidents = await _known(olga, "node", 3)
    assert {incident["state"] for incident in incidents} == {"complete"}
    assert {incident["fingerprint"] for incident in incidents} == {taught["now"]} != {error["fingerprint"]}
    whole = (await olga.get(f"/v1/incidents/{incidents[0]['id']}")).json()
    assert whole["context"]["finding"]["pattern"] == taught["pattern"]["name"]
    assert [decision["n"] for decision in whole["decisions"]] == [1, 2]
    assert whole["decisions"][1]["detail"]["judged_again"]["cause"] == "node"
    job = (await olga.get(f"/v1/jobs/{incidents[0]['job']}")).json()
    assert job["state"] == "available"
    assert [incident["title"] for incident in await _errors(olga, code=1)] == ["ZeroDivisionError: division by zero"]
    # What fails from now on is known at once, in every process that reads the store.
    await _fail(server, tenant, [QUUX.format(9, 9, 1)])
    await _known(olga, "node", 4)
    board = (await olga.get("/v1/taught")).json()
    assert (board["version"], len(board["patterns"])) == (1, 1)
    assert (board["patterns"][0]["record"]["seen"], board["patterns"][0]["loses"]) == (4, False)
    audit = (await olga.get("/v1/audit")).json()["entries"]
    assert [(entry["what"], entry["why"]) for entry in audit if entry["what"] == "error.teach"] == [
        ("error.teach", wish["reason"])
    ]


async def test_a_pattern_that_changes_other_errors_is_refused_unless_it_is_wanted(
    server: RunningServer, tenant: str
) -> None:
    await _fail(server, tenant, [QUUX.format(1, 1, 1)])
    await _fail(server, tenant, [ZERO])
    olga = server.person("operator", tenant=tenant, subject="olga")
    error, _ = await _errors(olga, unknown=1, code=1)
    place = f"/v1/errors/{error['fingerprint']}/teach"
    broad = {"cause": "node", "pattern": "(?i)quux daemon|error:"}
    refused = (await olga.post(place, json=broad)).json()
    assert (refused["written"], [incident["title"] for incident in refused["wrong"]]) == (
        False,
        ["ZeroDivisionError: division by zero"],
    )
    assert refused["wrong"][0]["cause"] == "code"
    assert refused["examples"], "packs have many examples with that word"
    assert (await olga.get("/v1/taught")).json()["version"] == 0
    missed = (await olga.post(place, json={"cause": "node", "pattern": "nothing like it"})).json()
    assert missed["problems"] == ["it does not match 1 of 1 failures of this error"]
    for pattern, words in (("(a", "cannot be used"), ("(?=a)b", "no lookaround"), ("a*", "every line")):
        assert words in (await olga.post(place, json={"cause": "node", "pattern": pattern})).json()["problems"][0]
    problem(await olga.post(place, json={"cause": "node", "pattern": "a" * 601}), 422)
    problem(await olga.post(place, json={"cause": "unknown"}), 422)
    assert (await olga.get("/v1/taught")).json()["version"] == 0
    assert (await olga.post(place, json={**broad, "anyway": True})).json()["written"] is True


async def test_a_taught_pattern_is_replaced_by_who_knows_better_and_can_be_removed(
    server: RunningServer, tenant: str
) -> None:
    await _fail(server, tenant, [QUUX.format(1, 1, 1)])
    olga = server.person("operator", tenant=tenant, subject="olga")
    (error,) = await _errors(olga, unknown=1)
    first = (await olga.post(f"/v1/errors/{error['fingerprint']}/teach", json={"cause": "code"})).json()
    assert (first["written"], first["judged"]) == (True, 1)
    (again,) = await _errors(olga, code=1)
    assert again["title"] == error["title"]
    assert again["fingerprint"] != error["fingerprint"]
    second = (await olga.post(f"/v1/errors/{again['fingerprint']}/teach", json={"cause": "data-missing"})).json()
    assert (second["replaces"], second["judged"], second["version"]) == ([first["pattern"]["name"]], 1, 2)
    await _errors(olga, data_missing=1)
    name = second["pattern"]["name"]
    problem(await server.person("viewer", tenant=tenant).delete(f"/v1/taught/{name}"), 403)
    problem(await server.person("operator", tenant=f"{tenant}-other").delete(f"/v1/taught/{name}"), 404)
    assert (await olga.delete(f"/v1/taught/{name}")).json() == {"version": 3, "patterns": []}
    problem(await olga.delete(f"/v1/taught/{name}"), 404)
    await _errors(olga, data_missing=1)


async def test_what_a_person_says_of_one_failure_holds_against_patterns(server: RunningServer, tenant: str) -> None:
    await _fail(server, tenant, [QUUX.format(number, number, 1) for number in range(2)])
    olga = server.person("operator", tenant=tenant, subject="olga")
    (error,) = await _errors(olga, unknown=2)
    place = f"/v1/incidents/{error['incident']}/cause"
    corrected = (await olga.post(place, json={"cause": "disk", "retry": "no", "reason": "I was there"})).json()
    assert (corrected["cause"], corrected["state"]) == ("disk", "held")
    await _errors(olga, disk=1, unknown=1)
    shown = (await olga.get(f"/v1/incidents/{error['incident']}")).json()
    assert shown["context"]["finding"]["words"] == "olga says so: I was there."
    refused = (await olga.post(f"/v1/errors/{error['fingerprint']}/teach", json={"cause": "node"})).json()
    assert refused["written"] is False
    assert "olga said that this one is disk" in refused["problems"][0]
    problem(await server.person("viewer", tenant=tenant).post(place, json={"cause": "disk"}), 403)
    other = server.person("operator", tenant=f"{tenant}-other")
    problem(await other.post(place, json={"cause": "disk"}), 404)
    problem(await other.post(f"/v1/errors/{error['fingerprint']}/teach", json={"cause": "node"}), 404)
    assert (await other.get("/v1/taught")).json() == {"version": 0, "patterns": []}


async def test_a_reconciler_judges_what_the_teacher_did_not_reach(server: RunningServer, tenant: str) -> None:
    await _fail(server, tenant, [QUUX.format(1, 1, 1)])
    olga = server.person("operator", tenant=tenant, subject="olga")
    (error,) = await _errors(olga, unknown=1)
    parts = server.services.components
    trial = (
        await olga.post(f"/v1/errors/{error['fingerprint']}/teach", json={"cause": "node", "dry_run": True})
    ).json()
    pattern = taught_pattern(
        error["fingerprint"], error["title"], trial["pattern"]["pattern"], Cause.NODE, None, [], by="olga", at=1
    )
    # Its writer died before it judged anything.
    await parts.taught.teach(tenant, pattern)
    async with server.domain.reconciler() as reconciler:

        async def judged() -> bool:
            await reconciler.components.recovery.look_at_failures()
            incident = (await olga.get(f"/v1/incidents/{error['incident']}")).json()
            return bool(incident["cause"] == "node" and incident["state"] == "complete")

        await until(judged, "the reconciler to judge it again")
