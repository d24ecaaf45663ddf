"""Rules from files: applied over HTTP and by the command line to a server; twice changes nothing, and nothing acts before its replay."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
import yaml
from tests.unit.apps.cli.conftest import Ended, Shell
from tests.unit.apps.server.asks import problem
from tests.unit.apps.server.rules.test_replay import recorded
from tests.unit.apps.server.running import RunningServer

SET = "/v1/rules/domain/site"
MEMORY = {"cause": "memory", "confidence": 0.9, "job": {"attempt": 1}}


def rule(name: str, cause: str, action: str = "hold", **more: Any) -> dict[str, Any]:
    return {
        "name": name, "type": "abort", "condition": f'cause == "{cause}"', "conclusion": {"steps": [{"action": action}]},
        "context": {"cause": cause}, **more,
    }  # fmt: skip


Forestay = Callable[..., Coroutine[Any, Any, Ended]]


@pytest.fixture
def forestay(server: RunningServer, tenant: str, tmp_path: Path) -> Forestay:
    """The command line, for an operator of the running server."""
    token = server.domain.token("operator", tenant=tenant)
    shell = Shell(tmp_path, {"FORESTAY_SERVER": server.url, "FORESTAY_TOKEN": token, "HOME": str(tmp_path)})

    def run(words: tuple[str, ...], stdin: str | None) -> Ended:
        # In a process of its own: what the server logs in this one is not the command's output.
        with shell.start(words, stdin=PIPE, stdout=PIPE, stderr=PIPE) as process:
            out, err = process.communicate((stdin or "").encode())
        return Ended(process.returncode, out.decode(), err.decode())

    async def ended(*words: str, stdin: str | None = None) -> Ended:
        return await asyncio.to_thread(run, words, stdin)

    return ended


@pytest.mark.finding("F-A12")
async def test_the_starter_rules_are_added_by_one_command_before_any_failure(
    server: RunningServer, tenant: str, forestay: Forestay
) -> None:
    ended = await forestay("rules", "apply", "--starter")
    assert ended.code == 0, ended.err
    assert len(ended.out.splitlines()) == 5
    assert "do not act" in ended.err
    ann = server.person("operator", tenant=tenant)
    body = (await ann.post("/v1/rules/test", json={"type": "abort", "task": "align", "context": MEMORY})).json()
    assert (body["verdict"], body["active"]["conclusion"]) == ("false", None)
    assert body["shadow"]["conclusion"]["steps"][0]["needs"]["memory"]["factor"] == 2
    again = await forestay("rules", "apply", "--starter")
    assert (again.code, again.out) == (0, "")
    assert "already (version 1)" in again.err
    assert (await ann.get(SET)).json()["version"] == 1
    tree = (await ann.get(SET)).json()["trees"][0]
    assert {entry["state"] for entry in tree["rules"]} == {"shadow"}
    # A copy in git, read from stdin, is the same file.
    copy = await forestay("rules", "starter")
    assert (await forestay("rules", "diff", "-f", "-", stdin=copy.out)).code == 0


async def test_a_file_is_compared_and_applied(
    server: RunningServer, tenant: str, forestay: Forestay, tmp_path: Path
) -> None:
    ann = server.person("operator", tenant=tenant)
    by_hand = rule("x", "disk") | {"reference_incident": "i1"}
    del by_hand["name"]
    assert (await ann.post(SET, json=by_hand)).status_code == 200
    file = tmp_path / "rules.yaml"

    async def run(command: str, *rules: dict[str, Any], options: tuple[str, ...] = ()) -> Ended:
        file.write_text(yaml.safe_dump({"rules": list(rules)}))
        return await forestay("rules", command, "-f", str(file), *options)

    memory, node = rule("memory", "memory"), rule("node", "node")
    ended = await run("diff", memory, node)
    assert (ended.code, ended.out.splitlines()) == (1, ["+ memory: add in shadow mode", "+ node: add in shadow mode"])
    assert (await ann.get(SET)).json()["rules"] == 1, "a diff changes nothing"
    assert (await run("apply", memory, node)).code == 0
    assert (await run("diff", memory, node)).code == 0
    # Another description keeps the rule; another condition is another rule, in shadow mode again.
    ids = {entry.get("name"): entry["id"] for entry in (await ann.get(SET)).json()["trees"][0]["rules"]}
    assert (await ann.post(f"{SET}/rules/{ids['memory']}/state", json={})).status_code == 200
    described = memory | {"description": "why"}
    ended = await run("diff", described, node)
    assert (ended.code, ended.out.splitlines()) == (1, [f"~ memory {ids['memory'][:8]}: change the description"])
    assert (await run("apply", described, node)).code == 0
    kept = (await ann.get(f"{SET}/rules/{ids['memory']}")).json()["rule"]
    assert (kept["state"], kept["description"]) == ("active", "why")
    changed = described | {"condition": 'cause == "memory" && job.attempt < 3'}
    assert "back in shadow mode" in (await run("apply", changed, node)).out
    now = {entry.get("name"): entry for entry in (await ann.get(SET)).json()["trees"][0]["rules"]}
    assert (now["memory"]["state"], now["memory"]["condition"]) == ("shadow", changed["condition"])
    assert now["node"]["id"] == ids["node"]
    # What left the file stays unless it is pruned; what was written for an incident stays in any case.
    assert (await run("diff", changed)).code == 0
    ended = await run("apply", changed, options=("--prune",))
    assert ended.out.splitlines() == [f"- node {ids['node'][:8]}: remove"]
    names = [entry.get("name") for entry in (await ann.get(SET)).json()["trees"][0]["rules"]]
    assert sorted(names, key=str) == [None, "memory"]


async def test_a_file_promotes_only_what_its_replay_allows(
    server: RunningServer, tenant: str, forestay: Forestay, tmp_path: Path
) -> None:
    await recorded(server, tenant)
    file = tmp_path / "rules.yaml"

    async def run(command: str, **states: str) -> Ended:
        rules = [rule(name, name, **({"state": states[name]} if name in states else {})) for name in ("memory", "node")]
        file.write_text(yaml.safe_dump({"rules": rules}))
        return await forestay("rules", command, "-f", str(file))

    assert "~ memory: promote, after a replay" in (await run("diff", memory="active")).out
    # To hold jobs whose node failed would stop one that succeeded at its next attempt: its replay says so.
    ended = await run("apply", memory="active", node="active")
    assert ended.code == 5, ended.err
    assert "memory: active" in ended.out
    assert "node was not promoted" in ended.err
    assert "would stop a job" in ended.err
    ann = server.person("operator", tenant=tenant)
    states = {entry["name"]: entry["state"] for entry in (await ann.get(SET)).json()["trees"][0]["rules"]}
    assert states == {"memory": "active", "node": "shadow"}
    versions = (await ann.get(f"{SET}/versions")).json()["versions"]
    assert versions[0]["replayed"]["incidents"] == 3, "the promotion was a replay's"
    assert (await run("diff", memory="active")).code == 0
    assert (await run("apply", memory="shadow")).out.strip() == "memory: in shadow mode"


async def test_what_a_file_may_not_do(server: RunningServer, tenant: str) -> None:
    ann = server.person("operator", tenant=tenant)

    async def put(*rules: dict[str, Any], **more: Any) -> Any:
        return await ann.put(SET, json={"rules": list(rules), **more})

    refusal = problem(
        await put(rule("a", "memory") | {"condition": "cause =="}, rule("b", "disk") | {"context": {}}), 422
    )
    assert [error["detail"].split(":")[0] for error in refusal["errors"]] == ["a", "b"]
    problem(await put(rule("a", "memory"), rule("a", "disk")), 422)
    # Of two rules for one example neither may silently take the other's place.
    refusal = problem(await put(rule("a", "memory"), rule("b", "memory", "retry")), 422)
    assert "exclude each other" in refusal["detail"]
    problem(await ann.get(SET), 404)
    assert (await put(rule("a", "memory"))).json()["rules"][0]["change"] == "added"
    # A rule that somebody refined by hand cannot be taken away under the refinement.
    refined = rule("x", "memory", "retry") | {
        "condition": "job.attempt > 1",
        "context": {**MEMORY, "job": {"attempt": 2}},
    }
    del refined["name"]
    assert (await ann.post(SET, json=refined | {"reference_incident": "i1"})).status_code == 200
    assert "refines it" in problem(await put(prune=True), 422)["detail"]
    problem(await server.person("viewer", tenant=tenant).put(SET, json={"rules": []}), 403)


async def test_a_file_that_overturns_a_reference_incident_needs_a_confirmation(
    server: RunningServer, tenant: str
) -> None:
    ann = server.person("operator", tenant=tenant)
    first = rule("x", "memory") | {"reference_incident": "i1", "context": MEMORY}
    del first["name"]
    await ann.post(SET, json=first)
    late = rule("late", "memory", "retry", context={**MEMORY, "job": {"attempt": 2}})
    refusal = problem(await ann.put(SET, json={"rules": [late]}), 409)
    assert [error["at"] for error in refusal["errors"]] == ["rule", "reference incident i1"]
    done = (await ann.put(SET, json={"rules": [late], "confirmed": True})).json()
    assert [entry["reference_incident"] for entry in done["overturned"]] == ["i1"]
    assert (await ann.put(SET, json={"rules": [late]})).json()["version"] == done["version"]


async def test_a_wrong_file_is_refused_before_it_is_sent(forestay: Forestay, tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text("rules:\n  - name: a\n")
    for command, code in (("check", 1), ("diff", 2), ("apply", 2)):
        ended = await forestay("rules", command, "-f", str(file))
        assert ended.code == code
        assert "rules.yaml:2:5: rules[0]: 'condition' is missing" in ended.out + ended.err
    assert (await forestay("rules", "check", "--json", str(file))).json["files"][0]["problems"][0]["line"] == 2
    for words in (("apply",), ("apply", "--starter", "-f", "x"), ("check",), ("apply", "-f", str(tmp_path / "gone"))):
        assert (await forestay("rules", *words)).code == 2
