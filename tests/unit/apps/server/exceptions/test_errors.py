"""Errors over HTTP: what is known of one, what people say of it, and that it stays in its tenant."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from tests.unit.apps.server.asks import problem, submit
from tests.unit.apps.server.event_reader import read_events
from tests.unit.apps.server.running import RunningServer, until
from tests.unit.apps.server.scripted_pilot import ScriptedPilot

ZERO = "read 17 lines\nZeroDivisionError: division by zero\n"
INDEX = "IndexError: list index out of range\n"

pytestmark = pytest.mark.every_store


async def _fail(server: RunningServer, tenant: str, log_tail: str, many: int, owner: str = "ada") -> None:
    person = server.person("submitter", tenant=tenant, subject=owner)
    await submit(person, *[{}] * many, max_attempts=1, when_exhausted="hold")
    pilot = await ScriptedPilot.register(server, tenant)
    for _ in range(many):
        await pilot.end(await pilot.claim_one(), outcome="failure", exit_code=3, log_tail=log_tail)


async def _groups(client: httpx.AsyncClient, **query: str) -> dict[str, dict[str, Any]]:
    body = (await client.get("/v1/inbox", params=query)).json()
    return {group["title"]: group for group in body["groups"]} | {"": {"snoozed": body["snoozed"]}}


async def _title_counts(client: httpx.AsyncClient, wanted: dict[str, int]) -> dict[str, dict[str, Any]]:
    async def there() -> dict[str, dict[str, Any]] | None:
        groups = await _groups(client)
        return groups if {title: group.get("count") for title, group in groups.items() if title} == wanted else None

    found: dict[str, dict[str, Any]] = await until(there, f"the inbox to have {wanted}")
    return found


async def test_an_error_tells_since_when_where_and_whose_and_shows_a_log(server: RunningServer, tenant: str) -> None:
    await _fail(server, tenant, ZERO, 2)
    await _fail(server, tenant, ZERO, 1, owner="ben")
    await _fail(server, tenant, INDEX, 1)
    olga = server.person("operator", tenant=tenant, subject="olga")
    titles = {"ZeroDivisionError: division by zero": 3, "IndexError: list index out of range": 1}
    zero = (await _title_counts(olga, titles))["ZeroDivisionError: division by zero"]
    assert (zero["state"], zero["assignee"]) == ("new", "")
    assert zero["last_seen"] >= zero["oldest"]
    answer = await olga.get(f"/v1/errors/{zero['fingerprint']}")
    assert answer.status_code == 200, answer.text
    error = answer.json()
    assert (error["title"], error["cause"], error["count"], error["waiting"]) == (zero["title"], "code", 3, 3)
    assert error["tags"]["owner"] == {"ada": 2, "ben": 1}
    assert error["tags"]["exit_code"] == {"3": 3}
    assert sum(error["tags"]["host"].values()) == 3
    assert (len(error["hours"]), sum(error["hours"])) == (24, 3)
    assert error["first_seen"] <= error["last_seen"]
    named = {"fingerprint": [zero["fingerprint"], "1-00000000"]}
    hours = (await olga.get("/v1/errors/hours", params=named)).json()
    assert hours == {
        "hours": {zero["fingerprint"]: error["hours"], "1-00000000": [0] * 24},
        "since": error["hours_since"],
    }
    problem(await olga.get("/v1/errors/hours", params={"fingerprint": ["x"]}), 422)
    assert len(error["samples"]) == 3
    assert error["samples"][0]["log"] == ZERO.splitlines()
    assert error["samples"][0]["deciding"] == ["ZeroDivisionError: division by zero"]
    question = {"by": "host", "cause": "code", "owner": "ada", "since": error["first_seen"]}
    assert sum((await olga.get("/v1/incidents/counts", params=question)).json()["counts"].values()) == 3
    question["since"] = "2126-01-01T00:00:00Z"
    assert (await olga.get("/v1/incidents/counts", params=question)).json()["counts"] == {}
    assert "not a time" in problem(await olga.get("/v1/incidents", params={"since": "soon"}), 422)["detail"]
    (host,) = error["tags"]["host"]
    for asked, many in (
        ({"host": host}, 2),
        ({"host": "elsewhere"}, 0),
        ({"since": error["first_seen"]}, 2),
        ({"since": question["since"]}, 0),
    ):
        assert len((await olga.get("/v1/inbox", params=asked)).json()["groups"]) == many, asked
    assert error["retry_record"]["words"] == "seen 3 times here, no retry has ended"
    by_host = {"by": "host", "fingerprint": zero["fingerprint"]}
    assert (await olga.get("/v1/incidents/counts", params=by_host)).json()["counts"] == error["tags"]["host"]


async def test_what_is_fixed_and_fails_again_has_regressed(server: RunningServer, tenant: str) -> None:
    await _fail(server, tenant, ZERO, 1)
    olga = server.person("operator", tenant=tenant, subject="olga")
    title = "ZeroDivisionError: division by zero"
    place = f"/v1/errors/{(await _title_counts(olga, {title: 1}))[title]['fingerprint']}"
    fixed = await olga.post(f"{place}/triage", json={"act": "resolve", "reason": "release 4.2"})
    assert (fixed.json()["state"], fixed.json()["by"], fixed.json()["why"]) == ("resolved", "olga", "release 4.2")
    assert (await _groups(olga))[title]["state"] == "resolved"
    await _fail(server, tenant, ZERO, 1)
    assert (await _title_counts(olga, {title: 2}))[title]["state"] == "regressed"
    assert (await olga.get(place)).json()["state"] == "regressed"
    audit = (await olga.get("/v1/audit")).json()["entries"]
    assert [(entry["what"], entry["why"]) for entry in audit if entry["what"].startswith("error.")] == [
        ("error.resolve", "release 4.2")
    ]


async def test_a_snoozed_error_is_left_out_until_it_is_asked_for(server: RunningServer, tenant: str) -> None:
    await _fail(server, tenant, ZERO, 1)
    olga = server.person("operator", tenant=tenant, subject="olga")
    title = "ZeroDivisionError: division by zero"
    place = f"/v1/errors/{(await _title_counts(olga, {title: 1}))[title]['fingerprint']}/triage"
    await olga.post(place, json={"act": "assign", "assignee": "ben"})
    snoozed = (await olga.post(place, json={"act": "snooze", "seconds": 3600})).json()
    assert (snoozed["state"], snoozed["assignee"]) == ("snoozed", "ben")
    assert snoozed["until"] > snoozed["since"]
    assert await _groups(olga) == {"": {"snoozed": 1}}
    shown = await _groups(olga, snoozed="show")
    assert (shown[title]["state"], shown[title]["until"], shown[""]) == ("snoozed", snoozed["until"], {"snoozed": 0})
    await olga.post(place, json={"act": "reopen"})
    assert ((await _groups(olga))[title]["state"], (await _groups(olga))[title]["assignee"]) == ("new", "ben")


async def test_the_badge_the_inbox_and_the_overview_count_alike_without_what_is_snoozed(
    server: RunningServer, tenant: str
) -> None:
    await _fail(server, tenant, ZERO, 2)
    await _fail(server, tenant, INDEX, 1)
    olga = server.person("operator", tenant=tenant, subject="olga")
    zero, index = "ZeroDivisionError: division by zero", "IndexError: list index out of range"
    fingerprint = (await _title_counts(olga, {zero: 2, index: 1}))[zero]["fingerprint"]
    snoozed = await olga.post(f"/v1/errors/{fingerprint}/triage", json={"act": "snooze", "seconds": 3600})
    assert snoozed.status_code == 200, snoozed.text
    async with read_events(olga, "/v1/inbox/changes") as reader:

        async def badge() -> bool:
            events = reader.named("inbox")
            return bool(events) and events[-1].data["waiting"] == 1

        await until(badge, "the badge to count what is not snoozed")
    assert (await olga.get("/v1/inbox")).json()["count"] == 1
    assert (await olga.get("/v1/overview")).json()["waiting"] == 1


async def test_filters_count_what_the_list_shows_for_each_value(server: RunningServer, tenant: str) -> None:
    """In each view, without what is snoozed and what waits elsewhere."""
    await _fail(server, tenant, ZERO, 2)
    await _fail(server, tenant, ZERO, 1, owner="ben")
    await _fail(server, tenant, INDEX, 1)
    await _fail(server, tenant, "slurmstepd: error: Detected 1 oom_kill event\n", 1, owner="ben")
    olga = server.person("operator", tenant=tenant, subject="olga")

    async def listed() -> list[dict[str, Any]] | None:
        inbox = (await olga.get("/v1/inbox")).json()
        return inbox["groups"] if inbox["count"] == 5 else None

    groups = await until(listed, "all failures to be listed")
    zero = next(group["fingerprint"] for group in groups if group["title"].startswith("ZeroDivisionError"))
    wish = {"fingerprint": zero, "owner": "ben", "do": "retry", "reach": "one", "reason": "recovered"}
    assert (await olga.post("/v1/inbox/acts", json=wish)).status_code == 201
    pilot = await ScriptedPilot.register(server, tenant)
    await pilot.end(await pilot.claim_one())

    async def recovered() -> bool:
        return bool((await olga.get("/v1/inbox", params={"view": "recovered"})).json()["count"] == 1)

    await until(recovered, "the one that was tried again to succeed")
    index = next(group["fingerprint"] for group in groups if group["title"].startswith("IndexError"))
    await olga.post(f"/v1/errors/{index}/triage", json={"act": "snooze", "seconds": 3600})

    async def total(**asked: str) -> int:
        return int((await olga.get("/v1/inbox", params=asked)).json()["count"])

    async def alike() -> bool:
        counts = (await olga.get("/v1/inbox/counts", params={"view": "attention"})).json()
        return bool(sum(counts["cause"].values()) == 3)

    await until(alike, "searches to know that the error is snoozed")
    seen = 0
    for view in ({}, *({"view": name} for name in ("attention", "approval", "recovering", "recovered"))):
        for asked in (view, view | {"snoozed": "show"}, view | {"owner": "ben"}, view | {"cause": "code"}):
            counts = (await olga.get("/v1/inbox/counts", params=asked)).json()
            assert sorted(counts) == ["cause", "host", "owner"]
            for by, values in counts.items():
                assert sum(values.values()) == await total(**{name: text for name, text in asked.items() if name != by})
                for value, many in values.items():
                    if value:
                        assert await total(**(asked | {by: value})) == many, (asked, by, value)
                        seen += 1
    assert seen > 30


async def test_only_operators_of_the_tenant_say_something_and_it_must_make_sense(
    server: RunningServer, tenant: str
) -> None:
    await _fail(server, tenant, ZERO, 1)
    olga = server.person("operator", tenant=tenant, subject="olga")
    title = "ZeroDivisionError: division by zero"
    place = f"/v1/errors/{(await _title_counts(olga, {title: 1}))[title]['fingerprint']}"
    problem(await server.person("viewer", tenant=tenant).post(f"{place}/triage", json={"act": "resolve"}), 403)
    other = server.person("operator", tenant=f"{tenant}-other")
    problem(await other.get(place), 404)
    problem(await other.post(f"{place}/triage", json={"act": "resolve"}), 404)
    problem(await olga.post(f"{place}/triage", json={"act": "snooze"}), 422)
    problem(await olga.post(f"{place}/triage", json={"act": "resolve", "assignee": "ben"}), 422)
    problem(await olga.get("/v1/errors/1-000000000000"), 404)
    assert (await olga.get(place)).json()["state"] == "new"


async def test_the_views_tell_what_waits_from_what_is_recovered(server: RunningServer, tenant: str) -> None:
    await _fail(server, tenant, ZERO, 2)
    olga = server.person("operator", tenant=tenant, subject="olga")
    title = "ZeroDivisionError: division by zero"
    group = (await _title_counts(olga, {title: 2}))[title]
    assert (await _groups(olga, view="attention"))[title]["count"] == 2
    for view in ("approval", "recovering", "recovered"):
        assert title not in await _groups(olga, view=view)
    wish = {"fingerprint": group["fingerprint"], "do": "retry", "reach": "one", "reason": "recovered"}
    assert (await olga.post("/v1/inbox/acts", json=wish)).status_code == 201

    pilot = await ScriptedPilot.register(server, tenant)
    await pilot.end(await pilot.claim_one())

    async def recovered() -> bool:
        return (await _groups(olga, view="recovered")).get(title, {}).get("count") == 1

    await until(recovered, "the one that was tried again to succeed")
    assert (await olga.get(f"/v1/errors/{group['fingerprint']}")).json()["recovered"] == 1
    assert (await _groups(olga, view="attention"))[title]["count"] == 1
    alone = (await olga.get("/v1/inbox", params={"fingerprint": "1-000000000000"})).json()
    assert (alone["groups"], alone["count"]) == ([], 0)


async def test_a_job_that_was_cancelled_forced_or_failed_again_has_not_recovered(
    server: RunningServer, tenant: str
) -> None:
    await _fail(server, tenant, ZERO, 4)
    olga = server.person("operator", tenant=tenant, subject="olga")
    title = "ZeroDivisionError: division by zero"
    fingerprint = (await _title_counts(olga, {title: 4}))[title]["fingerprint"]
    jobs = [incident["job"] for incident in (await olga.get("/v1/incidents")).json()["incidents"]]
    for job, verb in zip(jobs[:3], ("cancel", "force-complete", "retry"), strict=True):
        known = (await olga.get(f"/v1/jobs/{job}")).json()
        forced = {"expected_generation": known["generation"], "expected_attempt": known["attempt"]}
        body = {"reason": "the input is wrong"} | (forced if verb == "force-complete" else {})
        answer = await olga.post(f"/v1/jobs/{job}/{verb}", json=body)
        assert answer.status_code == 200, answer.text
    pilot = await ScriptedPilot.register(server, tenant)
    await pilot.end(await pilot.claim_one(), outcome="failure", exit_code=3, log_tail=ZERO)

    async def settled() -> dict[str, Any] | None:
        error = (await olga.get(f"/v1/errors/{fingerprint}")).json()
        return error if (error["count"], error["waiting"]) == (5, 2) else None

    error = await until(settled, "the fifth failure to be held")
    assert (error["recovered"], error["recovered_whole"], error["given_up"]) == (0, True, 0)
    assert title not in await _groups(olga, view="recovered")
