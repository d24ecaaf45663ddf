"""What the cases are sent to: real processes on a real store with a real Temporal, and things in it that they may name."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from tests import servers
from tests.live.run_site import new_namespace
from tests.unit.apps.server.processes import Processes, processes
from tests.unit.apps.server.running import Domain
from tests.unit.apps.server.sites.test_sites import said
from tests.unit.apps.server.store_room import store_room

TENANT = "asked"
SECRET = "open-sesame"
"""A word that everything here carries, and that nobody else may read."""
PLENTY = {"cpus": 64, "memory": 1 << 40, "disk": 1 << 40, "gpus": 8}
FLOW = """
forestay: 1
name: open-sesame
tasks:
  load: {command: [load], when_exhausted: hold, max_attempts: 1}
  tell: {command: [tell], after: [load]}
"""
PLAYBOOK = "forestay: 1\nname: again\nsteps:\n- {action: resubmit}\n"
TASK = {"name": SECRET, "executors": [{"image": "none", "command": ["true"]}]}
BAD_END = {
    "outcome": "failure",
    "reason": "exit",
    "exit_code": 1,
    "wall": 0.5,
    "host": "node1",
    "log_tail": f"{SECRET}\nMemoryError\n",
}


@dataclass(eq=False)
class Ground:
    """A server that answers, who asks, and the names of what is there."""

    running: Processes
    url: str
    names: dict[str, list[str]] = field(default_factory=dict)
    """By the name of the path's parameter: those that mean something here."""
    bodies: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By operation: fields with which a body is one that can be taken."""

    def token(self, *roles: str, tenant: str = TENANT, subject: str = "ada") -> str:
        return self.running.domain.token(*roles, tenant=tenant, subject=subject, seconds=6 * 3600)

    @property
    def log(self) -> str:
        """What the processes have said so far."""
        return "".join(path.read_text(errors="replace") for path in sorted(self.running.logs.glob("*.log")))

    def client(self, *roles: str, tenant: str = TENANT) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.token(*roles, tenant=tenant)}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60, trust_env=False)

    def pilot(self, tenant: str = TENANT) -> tuple[str, str]:
        """The name and the token of a pilot that has just registered."""
        with self.client("enrol", tenant=tenant) as enrol:
            answer = enrol.post("/v1/pilots", json={"host": "node1", "slots": 4, "resources": PLENTY})
        assert answer.status_code == 201, answer.text
        return answer.json()["pilot"], answer.json()["token"]

    def furnish(self) -> None:
        """Put one of everything there that an address can name."""
        with self.client("administrator") as ada:
            self.names |= _furnished(self, ada)
        incident = self.names["incident"][0]
        rule = {
            "type": "abort",
            "task": "",
            "condition": 'cause == "memory"',
            "conclusion": {"steps": [{"action": "resubmit"}]},
        }
        self.bodies = {
            "POST /v1/jobs": {"specification": {"command": ["true"]}, "jobs": [{}, {"priority": 3}]},
            "POST /v1/flows": {"text": FLOW},
            "POST /v1/runs": {"flow": self.names["version"][0], "params": {}},
            "PUT /v1/playbooks/{name}": {"text": PLAYBOOK},
            "POST /v1/rules/{level}/{name}": rule
            | {"reference_incident": incident, "context": None, "confirmed": True},
            "POST /v1/rules/test": {
                "type": "abort",
                "incident": incident,
                "context": None,
                "rule_set": None,
                "version": None,
            },
            "POST /v1/incidents/{incident}/playbook": {"playbook": "", "text": PLAYBOOK},
            "POST /v1/runs/{run}/triggers": {"trigger": "", "new": "something new", "task": ""},
            "POST /v1/jobs/{job}/continue": {"holder": "ada"},
            "PUT /v1/sites/{site}": said(),
            "POST /ga4gh/tes/v1/tasks": TASK,
            "POST /v1/tasks": TASK,
            "POST /ga4gh/wes/v1/runs": {
                "workflow_type": "FORESTAY",
                "workflow_type_version": "1",
                "workflow_url": self.names["version"][0],
                "workflow_params": "{}",
                "tags": "{}",
            },
        }


def _furnished(ground: Ground, ada: httpx.Client) -> dict[str, list[str]]:
    def do(method: str, path: str, body: Any) -> Any:
        answer = ada.request(method, path, json=body)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json()

    jobs = [
        job["id"]
        for job in do(
            "POST",
            "/v1/jobs",
            {"specification": {"name": SECRET, "command": ["true"]}, "jobs": [{"labels": {"word": SECRET}}] * 4},
        )["jobs"]
    ]
    do("POST", f"/v1/jobs/{jobs[0]}/cancel", {})
    do("POST", f"/v1/jobs/{jobs[1]}/hold", {"reason": SECRET})
    asked = do(
        "POST",
        f"/v1/jobs/{jobs[1]}/force-complete",
        {"expected_attempt": 0, "expected_generation": 0, "reason": SECRET},
    )
    pilot, token = ground.pilot()
    with httpx.Client(base_url=ground.url, headers={"Authorization": f"Bearer {token}"}, timeout=60) as own:
        claims = own.post(f"/v1/pilots/{pilot}/claims", json={"max": 2, "wait": 20, "resources": PLENTY}).json()[
            "claims"
        ]
        assert claims, "no job to claim"
        ends = [
            {name: claim[name] for name in ("job", "generation", "attempt", "claim")} | BAD_END for claim in claims[:1]
        ]
        assert own.post(f"/v1/pilots/{pilot}/completions", json={"completions": ends}).status_code == 200
    task = do("POST", "/ga4gh/tes/v1/tasks", TASK)["id"]
    version = do("POST", "/v1/flows", {"text": FLOW})["version"]
    run = do("POST", "/v1/runs", {"flow": version})["id"]
    do("PUT", "/v1/playbooks/again", {"text": PLAYBOOK})
    incident = _incident(ada)
    rule = {"type": "abort", "condition": 'cause == "memory"', "conclusion": {"steps": [{"action": "resubmit"}]}}
    added = do("POST", "/v1/rules/domain/asked", rule | {"reference_incident": incident})
    do("PUT", "/v1/sites/hall", said())
    do("POST", "/v1/sites/hall/launches", {"launches": [{"launch": "l-1", "size": "small"}]})
    events = [{"id": "e-1", "run": "c-1", "kind": "run-started", "flow": "nightly"}]
    theirs = do("POST", "/v1/engines/script/events", {"events": events})["answers"][0]["run"]
    return {
        "job": jobs,
        "run": [run, theirs],
        "version": [version],
        "task": [task, "load", "tell"],
        "engine": ["script"],
        "level": ["domain", "flow", "pack"],
        "name": ["again", "asked"],
        "rule": ["0", str(added.get("rule", 1))],
        "site": ["hall"],
        "host": ["node1"],
        "request": [asked["waits"]["id"]] if "waits" in asked else [],
        "incident": [incident],
        "pilot": [pilot],
        "flow": [version],
        "text": [FLOW, PLAYBOOK],
        "reference_incident": [incident],
        "claim": [claims[-1]["claim"]],
        "launch": ["l-1"],
        "size": ["small"],
        "place": ["load"],
    }


def _incident(ada: httpx.Client) -> str:
    """The incident that the failure has become, once the reconciler has looked at it."""
    give_up = time.monotonic() + 60
    while not (incidents := ada.get("/v1/incidents").json()["incidents"]):
        assert time.monotonic() < give_up, "waited in vain for the incident"
        time.sleep(0.2)
    first: str = incidents[0]["id"]
    return first


@contextmanager
def _engine(there: Ground) -> Iterator[None]:
    """The engine whose run is there: it answers its orders at once, half of them well. Otherwise every verb would wait for it."""
    over = threading.Event()

    def obey() -> None:
        with there.client("administrator") as own:
            while not over.is_set():
                with suppress(httpx.HTTPError, KeyError):
                    orders = own.get("/v1/engines/script/orders", params={"wait": 1}).json()["orders"]
                    for order in orders:
                        outcome = "done" if order["n"] % 2 else "refused"
                        own.post(f"/v1/engines/script/orders/{order['id']}", json={"outcome": outcome})

    obeying = threading.Thread(target=obey, daemon=True)
    obeying.start()
    try:
        yield
    finally:
        over.set()
        obeying.join()


@asynccontextmanager
async def ground(kind: str, folder: Path) -> AsyncIterator[Ground]:
    """Server, reconciler and orchestrator on a store of that kind; with something of everything in it."""
    namespace = await new_namespace()
    known = {"temporal": servers.temporal(), "temporal_namespace": namespace, "lease": 600}
    async with store_room(kind, folder) as url, processes(Domain(url, folder), folder, **known) as running:
        server = await running.server()
        running.reconciler()
        running.orchestrator()
        made = Ground(running, server.url)
        await asyncio.to_thread(made.furnish)
        with _engine(made):
            yield made
