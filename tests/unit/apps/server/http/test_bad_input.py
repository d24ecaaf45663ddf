"""Bad input is refused by name, all of it at once, and never breaks a server."""

from __future__ import annotations

import asyncio
import gzip
import json
import math
from typing import Any

import httpx
import pytest
from tests.unit.apps.server.asks import problem, read, submit
from tests.unit.apps.server.running import RunningServer
from tests.unit.apps.server.scripted_pilot import ScriptedPilot, end_of

JSON = {"Content-Type": "application/json"}


def one_job(job: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {"specification": {"command": ["true"]} | spec, "jobs": [job or {}]}


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "negative cpus": (one_job(resources={"cpus": -1}), "body.specification.resources.cpus"),
    "2^63 cpus": (one_job(resources={"cpus": 2**63}), "body.specification.resources.cpus"),
    "10^308 bytes": (one_job(resources={"memory": 10**308}), "body.specification.resources.memory"),
    "float for bytes": (one_job(resources={"memory": 1e308}), "body.specification.resources.memory"),
    "text for a number": (one_job(resources={"cpus": "NaN"}), "body.specification.resources.cpus"),
    "no wall time": (one_job(resources={"wall": 0}), "body.specification.resources.wall"),
    "negative cpus of a job": (one_job({"resources": {"cpus": -1}}), "body.jobs.0.resources.cpus"),
    "priority": (one_job({"priority": 1001}), "body.jobs.0.priority"),
    "index": (one_job({"index": 2**63}), "body.jobs.0.index"),
    "negative index": (one_job({"index": -1}), "body.jobs.0.index"),
    "expected runtime": (one_job({"expected_runtime": 0}), "body.jobs.0.expected_runtime"),
    "no command": ({"specification": {"command": []}, "jobs": [{}]}, "body.specification.command"),
    "no specification": ({"jobs": [{}]}, "body.jobs.0.specification"),
    "NUL in a command": (one_job(command=["a\0b"]), "body.specification.command.0"),
    "NUL in a name": (one_job({"name": "a\0b"}), "body.jobs.0.name"),
    "newline in a name": (one_job({"name": "a\nb"}), "body.jobs.0.name"),
    "RTL in a name": (one_job({"name": "a\u202egpj.exe"}), "body.jobs.0.name"),
    "isolate in a name": (one_job({"name": "a\u2066b"}), "body.jobs.0.name"),
    "line separator in a name": (one_job({"name": "a\u2028b"}), "body.jobs.0.name"),
    "10 kB name": (one_job({"name": "x" * 10_000}), "body.jobs.0.name"),
    "empty name": (one_job({"name": ""}), "body.jobs.0.name"),
    "lone surrogate": (one_job({"name": "\ud800"}), "body.jobs.0.name"),
    "path for an owner": (one_job({"owner": "../../etc"}), "body.jobs.0.owner"),
    "HTML for a team": (one_job({"team": "<b>"}), "body.jobs.0.team"),
    "label's name": (one_job({"labels": {"a=b": "c"}}), "body.jobs.0.labels"),
    "newline in a label": (one_job({"labels": {"a": "b\nc"}}), "body.jobs.0.labels.a"),
    "33 labels": (one_job({"labels": {f"l{n}": "" for n in range(33)}}), "body.jobs.0.labels"),
    "name of a variable": (one_job(environment={"A=B": "c"}), "body.specification.environment"),
    "NUL in a variable": (one_job(environment={"A": "b\0"}), "body.specification.environment.A"),
    "effects": (one_job(effects="none"), "body.specification.effects"),
    "attempts": (one_job(max_attempts=0), "body.specification.max_attempts"),
    "unknown field": (one_job({"nmae": "typo"}), "body.jobs.0.nmae"),
    "unknown field of the body": (one_job() | {"job": []}, "body.job"),
    "no time": (one_job({"not_before": "tomorrow"}), "body.jobs.0.not_before"),
    "a time that never was": (one_job({"not_before": "2026-13-01T00:00:00Z"}), "body.jobs.0.not_before"),
    "no address": (one_job({"callback": "ftp://127.0.0.1/"}), "body.jobs.0.callback"),
    "an address that is not allowed": (one_job({"callback": "http://169.254.169.254/"}), "body.jobs.0.callback"),
    "too many parameters": (one_job({"parameters": {"x": "y" * 20_000}}), "body.jobs.0.parameters"),
    "half a character in a parameter": (one_job({"parameters": {"x": "\ud800"}}), "body.jobs.0.parameters"),
    "half a character in a parameter's name": (one_job({"parameters": {"\ud800": 1}}), "body.jobs.0.parameters"),
    "a number beyond 64 bits": (one_job({"parameters": {"x": [2**64]}}), "body.jobs.0.parameters"),
    "a boolean for a number": (one_job({"priority": "high"}), "body.jobs.0.priority"),
    "a list for a job": ({"specification": {"command": ["true"]}, "jobs": [[]]}, "body.jobs.0"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
async def test_a_bad_job_is_refused_by_name(local: RunningServer, tenant: str, name: str) -> None:
    body, at = BAD[name]
    ada = local.person("submitter", tenant=tenant)
    answer = await ada.post("/v1/jobs", content=json.dumps(body), headers=JSON)
    returned_problem = problem(answer, 422)
    assert any(error["at"].startswith(at) for error in returned_problem["errors"]), returned_problem
    assert (await ada.get("/v1/jobs")).json()["jobs"] == []


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
async def test_numbers_that_json_does_not_have(local: RunningServer, tenant: str, value: float) -> None:
    ada = local.person("submitter", tenant=tenant)
    for body in (one_job(resources={"cpus": value}), one_job({"parameters": {"deep": [{"x": value}]}})):
        problem(await ada.post("/v1/jobs", content=json.dumps(body), headers=JSON), 422)


async def test_every_error_is_listed_at_once(local: RunningServer, tenant: str) -> None:
    ada = local.person("submitter", tenant=tenant)
    jobs: list[dict[str, Any]] = [{"priority": 5000, "name": "\n"}, {}, {"unknown": 1}, {"labels": {"": "x"}}]
    returned_problem = problem(
        await ada.post("/v1/jobs", json={"specification": {"command": "true"}, "jobs": jobs}), 422
    )
    assert {error["at"].split(".labels")[0] for error in returned_problem["errors"]} == {
        "body.specification.command", "body.jobs.0.priority", "body.jobs.0.name", "body.jobs.2.unknown", "body.jobs.3",
    }  # fmt: skip


async def test_one_bad_job_among_many_keeps_all_out(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    jobs: list[dict[str, Any]] = [{"name": f"job {n}"} for n in range(3000)]
    jobs[2999]["parameters"] = {"x": 2**64}
    returned_problem = problem(
        await ada.post("/v1/jobs", json={"specification": {"command": ["true"]}, "jobs": jobs}), 422
    )
    assert [error["at"] for error in returned_problem["errors"]] == ["body.jobs.2999.parameters"]
    await server.refresh()
    assert (await ada.get("/v1/jobs/counts")).json()["counts"] == {}


ODD_NAMES = [
    "<script>alert(1)</script>", "../../etc/passwd", "health", "naïve ✓ 漢字 עברית", "'; DROP TABLE jobs; --", "a/b?c#d",
    "%00", "${x}", "*", "\\",
]  # fmt: skip


async def test_odd_names_are_kept_as_they_are(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    jobs = await submit(ada, *({"name": name, "labels": {"l": name}} for name in ODD_NAMES))
    await server.refresh()
    for job, name in zip(jobs, ODD_NAMES, strict=True):
        assert (await read(ada, job))["name"] == name
        for filters in ({"name": name}, {"label": f"l={name}"}):
            assert [other_job["id"] for other_job in (await ada.get("/v1/jobs", params=filters)).json()["jobs"]] == [
                job
            ]
    counts = (await ada.get("/v1/jobs/counts", params={"by": "name"})).json()["counts"]
    assert counts == dict.fromkeys(ODD_NAMES, 1)


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"null", b"[]", b'"text"', b"\xff\xfe", b"[" * 100_000, b'{"a":' * 50_000, b"1" * 10_000,
        b'{"specification": {"command": ["true"]}, "jobs": [' + b"[" * 900 + b"]" * 900 + b"]}",
        b'{"specification": {"command": ["true"]}, "jobs": [{"parameters": {"x": ' + b"[" * 400 + b"]" * 400 + b"}}]}",
        gzip.compress(b" " * (1 << 22)),
    ],
    ids=[
        "nothing", "half", "null", "list", "text", "bytes", "100,000 brackets", "50,000 braces", "10,000 digits",
        "900 deep", "400 deep in a parameter", "gzip",
    ],
)  # fmt: skip
async def test_bodies_that_are_no_request(local: RunningServer, tenant: str, content: bytes) -> None:
    ada = local.person("submitter", tenant=tenant)
    answer = await ada.post("/v1/jobs", content=content, headers=JSON)
    assert answer.status_code in (400, 422)
    problem(answer, answer.status_code)
    packed = await ada.post("/v1/jobs", content=content, headers=JSON | {"Content-Encoding": "gzip"})
    assert packed.status_code in (400, 422)


async def test_a_body_that_is_not_said_to_be_json(local: RunningServer, tenant: str) -> None:
    """A web page can post text to any address without asking; it cannot post JSON."""
    ada = local.person("submitter", tenant=tenant)
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        problem(await ada.post("/v1/jobs", content=json.dumps(one_job()), headers={"Content-Type": kind}), 422)


async def test_a_body_that_is_too_large(local: RunningServer, tenant: str) -> None:
    async with local.domain.server(max_body=10_000) as small:
        ada = small.person("submitter", tenant=tenant)
        body = json.dumps(one_job({"parameters": {"x": "y" * 9_000}})).encode()
        assert (await ada.post("/v1/jobs", content=body, headers=JSON)).status_code == 201
        returned_problem = problem(await ada.post("/v1/jobs", content=body + b" " * 10_000, headers=JSON), 413)
        assert "10000" in returned_problem["detail"]

        async def pieces(many: int) -> Any:
            for _ in range(many):
                yield b" " * 1000

        problem(await ada.post("/v1/jobs", content=pieces(20), headers=JSON), 413)
        assert len((await ada.get("/v1/jobs")).json()["jobs"]) == 1


async def _raw(server: RunningServer, *pieces: bytes, patience: float) -> bytes:
    """Send bytes and read until the server hangs up."""
    host, port = server.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        async with asyncio.timeout(patience):
            return await reader.read()
    finally:
        writer.close()


async def test_a_client_that_sends_too_slowly_is_hung_up_on(local: RunningServer, tenant: str) -> None:
    async with local.domain.server(head_seconds=0.5, body_seconds=0.5) as strict:
        assert await _raw(strict, b"", patience=10) == b""
        assert await _raw(strict, b"GET /v1/jobs HTTP/1.1\r\nHost: x\r\n", patience=10) == b""
        token = strict.domain.token("submitter", tenant=tenant)
        head = (
            f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
            "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
        )
        answer = await _raw(strict, head.encode(), patience=10)
        assert answer.startswith(b"HTTP/1.1 408 ")
        # One that waits for its answer, or rests between two requests, is not slow.
        pilot = await ScriptedPilot.register(strict, tenant)
        assert await pilot.claim(wait=1.5) == []
        ada = strict.person("viewer", tenant=tenant)
        assert (await ada.get("/v1/jobs")).status_code == 200
        await asyncio.sleep(1)
        assert (await ada.get("/v1/jobs")).status_code == 200


async def test_the_head_of_a_request_has_its_bounds_before_anybody_is_known(local: RunningServer, tenant: str) -> None:
    status = "GET /v1/status HTTP/1.1\r\nHost: x\r\n"
    token = local.domain.token("viewer", tenant=tenant)
    for name, head in {
        "one long header": f"{status}X: {'a' * 70_000}\r\n\r\n",
        "many headers": status + "".join(f"X{n}: a\r\n" for n in range(200)) + "\r\n",
        "a long address": f"GET /v1/jobs?{'a' * 70_000} HTTP/1.1\r\nHost: x\r\n\r\n",
    }.items():
        answer = await _raw(local, head.encode(), patience=10)
        refused = answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 431 "))
        assert refused or (answer == b"" and name != "many headers"), name
    kept = f"{status}Authorization: Bearer {token}\r\nX: {'a' * 40_000}\r\nConnection: close\r\n\r\n"
    assert (await _raw(local, kept.encode(), patience=10)).startswith(b"HTTP/1.1 200 ")
    # One that never ends is hung up on after its bound, not after its time.
    host, port = local.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"{status}X: ".encode())
    sent = 0
    try:
        while sent < 64 << 20:
            writer.write(b"a" * 100_000)
            await writer.drain()
            sent += 100_000
    except OSError:
        pass
    finally:
        writer.close()
    assert sent < 16 << 20


@pytest.mark.parametrize("begun", [b"GET /v1", b"\r\n"])
async def test_a_later_head_has_its_time_too(local: RunningServer, tenant: str, begun: bytes) -> None:
    """The first request is answered, even if by 401; who then sends half of another does not hold the connection for ever."""
    async with local.domain.server(head_seconds=0.5) as strict:
        token = strict.domain.token("viewer", tenant=tenant)
        whole = f"GET /v1/status HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
        host, port = strict.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        for _ in range(2):
            writer.write(whole)
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
        writer.write(begun)
        async with asyncio.timeout(20):
            assert await reader.read() == b""
        writer.close()


BAD_ENDS: dict[str, dict[str, Any]] = {
    "no job": {"job": ""},
    "a job that is no id": {"job": "\0"},
    "a long job": {"job": "𝕏" * 64},
    "a claim that is no id": {"claim": "𝕏" * 64},
    "attempt 0": {"attempt": 0},
    "attempt 2^63": {"attempt": 2**63},
    "negative generation": {"generation": -1},
    "unknown outcome": {"outcome": "fine"},
    "exit code": {"exit_code": 2**40},
    "negative wall": {"wall": -1},
    "long log": {"log_tail": "x" * 65_537},
    "no digest": {"manifest": {"path": "p", "sha256": "no", "files": 1, "bytes": 1}},
    "unknown field": {"colour": "red"},
}


@pytest.mark.parametrize("name", BAD_ENDS)
async def test_a_bad_end_is_refused_by_name(local: RunningServer, tenant: str, name: str) -> None:
    pilot = await ScriptedPilot.register(local, tenant)
    await submit(local.person("submitter", tenant=tenant))
    claim = await pilot.claim_one()
    answer = await pilot.post("completions", {"completions": [end_of(claim) | BAD_ENDS[name]]})
    returned_problem = problem(answer, 422)
    assert all(error["at"].startswith("body.completions.0") for error in returned_problem["errors"])
    assert await pilot.end(claim) == ["committed"]


ODD_TIMES = [
    "not a time", "2026-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00",
    0, 1.7e9, 1e300, -1e300, 1e15, None,
]  # fmt: skip


async def test_when_an_attempt_began_never_costs_its_end(server: RunningServer, tenant: str) -> None:
    """A pilot's clock may be odd; the end that it tells of is dear."""
    ada = server.person("submitter", tenant=tenant)
    await submit(ada, *[{}] * len(ODD_TIMES))
    pilot = await ScriptedPilot.register(server, tenant)
    claims: list[dict[str, Any]] = []
    while len(claims) < len(ODD_TIMES):
        claims += await pilot.claim(most=len(ODD_TIMES) - len(claims))
    for claim, started in zip(claims, ODD_TIMES, strict=True):
        assert await pilot.end(claim, started=started, outcome="failure", exit_code=1) == ["committed"]
    await server.refresh()
    for claim in claims:
        assert (await read(ada, claim["job"]))["state"] == "failed"
        assert (await ada.get(f"/v1/jobs/{claim['job']}/story")).status_code == 200


async def test_a_log_is_kept_as_it_is_or_refused(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    texts = ["\0", "\x1b[31mred", "\u202e", "<script>", "x" * 65_536]
    await submit(ada, *[{}] * len(texts))
    pilot = await ScriptedPilot.register(server, tenant)
    claims: list[dict[str, Any]] = []
    while len(claims) < len(texts):
        claims += await pilot.claim(most=len(texts) - len(claims))
    half = json.dumps({"completions": [end_of(claims[0], log_tail="half a \ud800")]})
    client = server.client(pilot.token)
    problem(await client.post(f"/v1/pilots/{pilot.name}/completions", content=half, headers=JSON), 422)
    for claim, text in zip(claims, texts, strict=True):
        assert await pilot.end(claim, log_tail=text) == ["committed"]
    await server.refresh()
    for claim, text in zip(claims, texts, strict=True):
        shown = await ada.get(f"/v1/jobs/{claim['job']}/log")
        assert shown.text == text
        assert shown.headers["content-type"] == "text/plain; charset=utf-8"
        assert shown.headers["x-content-type-options"] == "nosniff"


BAD_QUERIES: dict[str, dict[str, Any]] = {
    "unknown filter": {"colour": "red"},
    "unknown state": {"state": "lost"},
    "no number": {"min_priority": "high"},
    "a large number": {"min_priority": 2**63},
    "a very large number": {"min_cpus": "9" * 400},
    "no time": {"created_after": "yesterday"},
    "no label": {"label": "key"},
    "neither": {"held": "maybe"},
    "unknown order": {"sort": "colour"},
    "an order that is not for people": {"sort": "document"},
    "limit 0": {"limit": 0},
    "limit 1001": {"limit": 1001},
    "101 values": {"owner": [f"o{n}" for n in range(101)]},
}


@pytest.mark.parametrize("name", BAD_QUERIES)
async def test_a_bad_filter_is_refused(local: RunningServer, tenant: str, name: str) -> None:
    ada = local.person("viewer", tenant=tenant)
    problem(await ada.get("/v1/jobs", params=BAD_QUERIES[name]), 422)


async def test_a_bad_cursor_is_refused(server: RunningServer, tenant: str) -> None:
    ada = server.person("viewer", tenant=tenant)
    for cursor in ("x", "\0", "bnVsbA==", "W10", "WyItY3JlYXRlZCIsMSwi", "eyJhIjoxfQ", "é", "=" * 99):
        problem(await ada.get("/v1/jobs", params={"cursor": cursor}), 400)


QUERY_LANGUAGE = ["*", "name:*", "a OR b", '{"match_all": {}}', "%", "_", "' OR '1'='1", "\\", "/.*/", "\0"]


async def test_filters_are_values_never_a_language(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    await submit(ada, {"name": "a"}, {"name": "b", "labels": {"l": "m"}})
    await server.refresh()
    for text in QUERY_LANGUAGE:
        for field in ("name", "owner", "team", "host", "pilot", "id", "specification", "resource_class", "phase"):
            answer = await ada.get("/v1/jobs", params={field: text})
            assert answer.status_code == 200, answer.text
            assert answer.json()["jobs"] == []
        assert (await ada.get("/v1/jobs", params={"label": f"l={text}"})).json()["jobs"] == []


async def test_ids_in_the_path_may_be_anything(server: RunningServer, tenant: str) -> None:
    ada = server.person("operator", tenant=tenant)
    for job in ("%00", "%2e%2e%2f", "%ff", "x" * 5000, "%F0%9D%95%8F" * 64, "_search", "%20", "*", "a,b"):
        for path in ("", "/story", "/log", "/specification", "/outputs"):
            answer = await ada.get(f"/v1/jobs/{job}{path}")
            assert answer.status_code == 404, (job, path, answer.text)
        answer = await ada.post(f"/v1/jobs/{job}/cancel")
        assert answer.status_code == 404, (job, answer.text)


async def test_an_answer_is_never_kept_by_a_proxy_or_guessed_by_a_browser(local: RunningServer, tenant: str) -> None:
    ada = local.person("viewer", tenant=tenant)
    answers: list[httpx.Response] = [await ada.get(path) for path in ("/v1/jobs", "/v1/status", "/metrics", "/nowhere")]
    for answer in answers:
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "server" not in answer.headers


INSIDE = (
    "http://169.254.169.254/latest", "http://[::1]/x", "http://2130706433/x", "http://0x7f.1/x", "http://127.0.0.1/x", "http://localhost/x",
    "http://user:word@example.org/x", "ftp://example.org/x", "gopher://example.org/x", "file:///data/../etc/shadow", "javascript:x", "http://",
)  # fmt: skip
"""Addresses for inputs, outputs and callbacks by which a server or pilot would be led to what is not the caller's."""


async def _task(client: httpx.AsyncClient, **more: Any) -> httpx.Response:
    task = {"executors": [{"image": "alpine", "command": ["true"]}], **more}
    return await client.post("/ga4gh/tes/v1/tasks", json=task)


async def test_addresses_of_tasks_that_lead_inside_are_refused(local: RunningServer, tenant: str) -> None:
    ada = local.person("submitter", tenant=tenant)
    for url in INSIDE:
        for more in ({"inputs": [{"url": url, "path": "/in"}]}, {"outputs": [{"url": url, "path": "/out"}]}):
            answer = await _task(ada, **more)
            assert answer.status_code == 400, f"{url}: {answer.status_code} {answer.text}"
    assert (await _task(ada)).status_code == 200


async def test_paths_of_tasks_that_climb_are_refused(local: RunningServer, tenant: str) -> None:
    ada = local.person("submitter", tenant=tenant)
    for path in ("../x", "/a/../../etc/passwd", "in", "/a\0b"):
        for more in (
            {"inputs": [{"content": "x", "path": path}]},
            {"outputs": [{"url": "file:///tmp/x", "path": path}]},
            {"volumes": [path]},
        ):
            answer = await _task(ada, **more)
            assert answer.status_code == 400, f"{path!r} in {list(more)}: {answer.status_code} {answer.text}"


async def test_too_many_of_anything_is_refused_by_its_limit(local: RunningServer, tenant: str) -> None:
    ada = local.person("submitter", tenant=tenant)
    inputs = [{"name": f"f{n}", "source": "/data/f"} for n in range(1001)]
    returned_problem = problem(await ada.post("/v1/jobs", json=one_job(inputs=inputs)), 422)
    assert "1000" in str(returned_problem["errors"])
    answer = await _task(ada, inputs=[{"content": "", "path": f"/in/{n}"} for n in range(10_001)])
    assert (answer.status_code, "10000" in answer.text) == (400, True), answer.text[:300]
    for many, limit in ((1_001, "at most 1000"), (100_000, "at most 524288 characters")):
        tasks = "".join(f"  t{n}: {{command: [x]}}\n" for n in range(many))
        returned_problem = problem(
            await ada.post("/v1/flows", json={"text": f"forestay: 1\nname: f\ntasks:\n{tasks}"}), 422
        )
        assert limit in str(returned_problem), str(returned_problem)[:300]


async def test_no_parameter_or_tag_of_a_task_says_whose_it_is(local: RunningServer, tenant: str) -> None:
    """What the server decides stays the server's: an owner, a tenant, a policy that comes by a side door is only text."""
    ada = local.person("submitter", tenant=tenant)
    wanted = {
        "owner": "root",
        "tenant": "other",
        "team": "root",
        "approvals": "off",
        "effects": "none",
        "pilot": "p-1",
    }
    answer = await _task(ada, tags=wanted, resources={"backend_parameters": wanted | {"priority": "1"}})
    assert answer.status_code == 200, answer.text
    job = await read(ada, answer.json()["id"])
    assert (job["owner"], job["team"], job["priority"]) == ("ada", "", 1)
    problem(await local.person("viewer", tenant="other").get(f"/v1/jobs/{answer.json()['id']}"), 404)
    for value in ("1001", "-1001", "1e3", "9" * 30):
        answer = await _task(ada, resources={"backend_parameters": {"priority": value}})
        shown = await read(ada, answer.json()["id"]) if answer.status_code == 200 else {"priority": 0}
        assert -1000 <= shown["priority"] <= 1000, value
