"""A fake of the HTTP interface: it keeps jobs in memory and answers as the contract says, on a real socket.

It decides nothing about jobs. The real server is driven in tests/system/walks.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "a-token-of-the-fake"


def job_json(number: int = 1, **changes: Any) -> dict[str, Any]:
    """A job as the interface shows it; its id begins with its number in hexadecimal."""
    job: dict[str, Any] = {
        "id": f"{number:08x}-0000-4000-8000-000000000000",
        "name": "align", "tenant": "physics", "owner": "alice", "team": "", "labels": {}, "patterns": ["polling"], "state": "available", "phase": None,
        "holders": [], "held": False, "priority": 0, "index": None, "parameters": {}, "specification": "spec-1",
        "resources": {"cpus": 1, "memory": 2 << 30, "disk": 0, "gpus": 0, "wall": 3600}, "resource_class": "c1m12d0g0",
        "expected_runtime": None, "created": "2026-05-01T10:00:00.000Z", "changed": "2026-05-01T10:00:00.000Z", "not_before": None,
        "generation": 0, "attempt": 0, "retries": 0, "failures": 0, "releases": 0, "max_attempts": 3, "claim": None, "last": None,
        "winner": None, "callback": None, "overlap_possible": False, "version": "1.1",
    }  # fmt: skip
    return job | changes


def claim_json(**changes: Any) -> dict[str, Any]:
    return {"id": "c" * 32, "pilot": "p-1", "host": "node7", "granted": "2026-05-01T10:00:05.000Z"} | changes


def ending_json(**changes: Any) -> dict[str, Any]:
    ending = {
        "attempt": 1, "outcome": "failure", "reason": "exit", "exit_code": 3, "signal": None, "started": "2026-05-01T10:00:05.000Z",
        "wall": 7.25, "cpu": 6.5, "peak_memory": 1 << 30, "host": "node7",
    }  # fmt: skip
    return ending | changes


def event(name: str, data: object, number: str = "") -> bytes:
    head = f"id: {number}\n" if number else ""
    return f"{head}event: {name}\ndata: {json.dumps(data)}\n\n".encode()


@dataclass
class Request:
    """What a client sent."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: Any


@dataclass
class Trouble:
    """What the fake does instead of, or after, answering."""

    status: int = 0
    retry_after: str | None = "0"
    lose_answer: bool = False
    """The request is carried out and the connection closed without a word."""


def task_json(name: str, state: str = "waiting", **changes: Any) -> dict[str, Any]:
    task: dict[str, Any] = {
        "id": name, "task": name.rpartition("/")[2], "state": state, "round": 0 if state == "waiting" else 1, "count": 0, "well": 0,
        "bad": 0, "exit_code": None, "reason": "", "holders": [], "began": None, "finished": None,
    }  # fmt: skip
    return task | changes


def run_json(number: int = 1, *tasks: dict[str, Any], **changes: Any) -> dict[str, Any]:
    run: dict[str, Any] = {
        "id": f"{number:08x}-0000-5000-8000-000000000000", "owner": "alice", "name": "nightly", "version": "f" * 64, "state": "running",
        "started": "2026-05-01T10:00:00.000Z", "ended": None, "params": {}, "phase": "running", "outcome": None, "reason": "", "outputs": {},
        "holders": [], "tasks": list(tasks), "compensations": 0, "waits": [], "schedule": None,
    }  # fmt: skip
    return run | changes


@dataclass
class FakeRuns:
    """Flows and runs. A run is what the next of its states says; the last one stays."""

    flows: dict[str, str] = field(default_factory=dict)
    states: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    started: list[Request] = field(default_factory=list)
    history: list[dict[str, Any]] = field(default_factory=list)
    dry_run: dict[str, Any] = field(default_factory=dict)

    def put(self, *states: dict[str, Any]) -> str:
        """A run that goes through these states; the next that is started is this one."""
        run: str = states[0]["id"]
        self.states[run] = list(states)
        return run

    def answer(self, asked: Request, kind: str, rest: list[str]) -> tuple[int, Any]:
        match (asked.method, kind, rest):
            case ("POST", "flows", []):
                self.flows["f" * 64] = asked.body["text"]
                return 201, {"version": "f" * 64, "name": "nightly"}
            case ("GET", "flows", [version]) if version in self.flows:
                return 200, {"version": version, "name": "nightly", "text": self.flows[version], "holders": []}
            case ("POST", "runs", []):
                self.started.append(asked)
                return 201, {"id": next(iter(self.states)), "created": len(self.started) == 1}
            case ("POST", "runs", ["dry-run"]):
                return 200, self.dry_run
            case ("GET", "runs", []):
                found_states = [states[0] for states in self.states.values()]
                wanted = ",".join(asked.query.get("state", [])).split(",")
                return 200, {
                    "runs": [state for state in found_states if wanted == [""] or state["state"] in wanted],
                    "cursor": None,
                }
            case ("GET", "runs", [run]) if run in self.states:
                states = self.states[run]
                return 200, states.pop(0) if len(states) > 1 else states[0]
            case ("GET", "runs", [run, "story"]) if run in self.states:
                return 200, {"story": self.history, "cursor": None}
            case ("POST", "runs", [run, "verbs"]) if run in self.states:
                return 200, {"id": asked.body["id"], "accepted": True, "detail": ""}
        return 404, f"there is no {asked.path}"


def incident_json(number: int, **fields: Any) -> dict[str, Any]:
    """An incident that waits for a person, with one decision."""
    return {
        "id": f"{number:08x}-0000-4000-9000-000000000000", "owner": "alice", "type": "abort", "at": "2026-05-01T10:00:00.000Z", "state": "held",
        "due": None, "cause": "unknown", "flow": "", "run": "", "task": "", "job": "", "group": "", "fingerprint": "1-0a1b2c3d4e5f", "title": "exit code 1", "note": "1 of 1 attempts used", "attempt": 1,
        "context": {
            "evidence": {"exit_code": 7, "log_tail": "starting\nquux: all seats are taken\n"},
            "finding": {"confidence": 0.2, "words": "No pattern matches.", "lines": [], "advice": "Look at the log.", "retry": "no"},
        },
        "retry_record": {"seen": 14, "retried": 13, "helped": 12, "whole": True, "words": "seen 14 times here, retry helped 12 of 13"},
        "retry_verdict": "no", "advice": "Nobody knows whether another try helps: it waits for a person (1 of 1 attempts used).",
        "decisions": [{"verdict": "hold", "by": "default policy", "playbook": None, "detail": {"words": "1 of 1 attempts used"}}], "steps": [],
    } | fields  # fmt: skip


@dataclass
class FakeApi:
    """The fake. Tests put jobs in, troubles in, and look at the requests."""

    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    stories: dict[str, dict[str, Any]] = field(default_factory=dict)
    whys: dict[str, dict[str, Any]] = field(default_factory=dict)
    logs: dict[str, str] = field(default_factory=dict)
    specification: dict[str, Any] = field(default_factory=lambda: {"name": "align", "command": ["./align", "a b"]})
    pilots: list[dict[str, Any]] = field(default_factory=list)
    sites: list[dict[str, Any]] = field(default_factory=list)
    peers: list[dict[str, Any]] = field(default_factory=list)
    inactive: list[dict[str, Any]] = field(default_factory=list)
    alerts: list[dict[str, Any]] = field(default_factory=list)
    incidents: list[dict[str, Any]] = field(default_factory=list)
    """The newest first."""
    safeguards: dict[str, Any] = field(default_factory=lambda: {"stops": [], "groups": [], "limits": []})
    audit: list[dict[str, Any]] = field(default_factory=list)
    inbox: list[dict[str, Any]] = field(default_factory=list)
    fates: dict[str, Any] = field(default_factory=dict)
    snoozed: int = 0
    held_runs: int = 0
    errors: dict[str, dict[str, Any]] = field(default_factory=dict)
    taught: dict[str, Any] = field(default_factory=dict)
    approvals: list[dict[str, Any]] = field(default_factory=list)
    hosts: list[dict[str, Any]] = field(default_factory=list)
    questions: list[dict[str, Any]] = field(default_factory=list)
    schedules: dict[str, dict[str, Any]] = field(default_factory=dict)
    awaited: list[str] = field(default_factory=list)
    """The runs that wait for an event."""
    needs_approval: bool = False
    """Whether force-complete waits for one."""
    streams: list[list[bytes]] = field(default_factory=list)
    """What each stream that is opened says before it ends."""
    troubles: list[Trouble] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    sizes: dict[str, Any] = field(default_factory=lambda: {"tasks": [], "read": 0, "whole": True})
    quotas: dict[str, Any] = field(default_factory=lambda: {"quotas": [], "members": [], "half_life": 0, "shares": []})
    keys: dict[str, tuple[Any, list[str]]] = field(default_factory=dict)
    runs: FakeRuns = field(default_factory=FakeRuns)
    refuse: str = ""
    """The reason with which every steering is refused."""
    read: threading.Event = field(default_factory=threading.Event)
    """Set when a single job was read."""
    on_read: Any = None
    """Called before a single job is read."""
    url: str = ""

    def put(self, *jobs: dict[str, Any]) -> None:
        for job in jobs:
            self.jobs[job["id"]] = job

    def sent(self, method: str, path: str) -> list[Request]:
        return [request for request in self.requests if (request.method, request.path) == (method, path)]

    @contextmanager
    def serving(self) -> Iterator[FakeApi]:
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"api": self}))
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield self
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    def answer(self, asked: Request) -> tuple[int, Any]:
        """Status and body."""
        parts = asked.path.strip("/").split("/")
        if asked.headers.get("authorization") != f"Bearer {TOKEN}":
            return 401, "the token is not known"
        match (asked.method, parts[1:]):
            case ("POST", ["jobs"]):
                return self._submit(asked)
            case ("GET", ["jobs"]):
                return 200, self._search(asked.query)
            case ("GET", ["jobs", "counts"]):
                return 200, {"counts": self._count(asked.query)}
            case ("GET", ["pilots"]):
                wanted = asked.query.get("state")
                pilots = [pilot for pilot in self.pilots if not wanted or pilot["state"] in wanted]
                return 200, {"pilots": pilots, "inactive": self.inactive}
            case ("POST", ["pilots", "drain"]):
                return 200, {"pilots": [pilot["id"] for pilot in self.pilots]}
            case ("POST", ["pilots", _, "revoke"]):
                return 200, {}
            case ("POST", ["logins"]):
                return 201, {"url": f"{self.url}/login?once=abc", "expires": "2026-05-01T10:10:00.000Z"}
            case ("GET", ["sites"]):
                return 200, {"sites": [{"site": site["site"]} for site in self.sites]}
            case ("GET", ["sites", name]):
                sites = [site for site in self.sites if site["site"] == name]
                return (200, sites[0]) if sites else (404, {"detail": f"no agent ever looked after a site {name}"})
            case ("GET", ["peers"]):
                return 200, {"key": '{"kty": "OKP"}', "peers": self.peers}
            case ("PUT", ["peers", name]):
                self.peers.append({"peer": name, **asked.body})
                return 200, self.peers[-1]
            case ("DELETE", ["peers", name]):
                gone = [peer for peer in self.peers if peer["peer"] == name]
                self.peers = [peer for peer in self.peers if peer not in gone]
                return (200, {}) if gone else (404, f"there is no peer {name}")
            case ("GET", ["quotas"]):
                return 200, self.quotas
            case ("PUT", ["quotas", *subject]):
                return 200, {"kind": subject[0], "name": subject[-1].replace("%2A", "*"), **asked.body}
            case ("DELETE", ["quotas", *_]):
                return 200, {}
            case ("GET", ["safeguards"]):
                return 200, self.safeguards
            case ("POST", ["safeguards", "groups"]):
                return 200, self.safeguards["groups"][0]
            case ("POST", ["safeguards", what]):
                stop = {"everywhere": asked.body["everywhere"], "by": "alice", "why": asked.body["reason"]}
                self.safeguards["stops"] = [stop | {"at": "2026-05-01T10:00:00.000Z"}] if what == "stop" else []
                return 200, {"stops": self.safeguards["stops"]}
            case ("GET", ["audit"]):
                first, many = (int(asked.query.get(name, ["1"])[0]) for name in ("start", "limit"))
                last = self.audit[-1] if self.audit else {"number": 0, "hash": "0" * 64}
                entries = [record for record in self.audit if record["number"] >= first][: min(many, 3)]
                return 200, {"entries": entries, "head": {"number": last["number"], "hash": last["hash"]}}
            case ("GET", ["incidents"]):
                filters = {key: values[0] for key, values in asked.query.items() if key in ("run", "job", "state")}
                incidents = [
                    incident
                    for incident in self.incidents
                    if all(incident[key] == value for key, value in filters.items())
                ]
                return 200, {"incidents": incidents[: int(asked.query.get("limit", ["100"])[0])], "cursor": None}
            case ("GET", ["incidents", "counts"]):
                by = asked.query["by"][0]
                return 200, {"counts": dict(Counter(str(incident.get(by, "")) for incident in self.incidents))}
            case ("GET", ["incidents", name]) if any(incident["id"] == name for incident in self.incidents):
                return 200, next(incident for incident in self.incidents if incident["id"] == name)
            case ("GET", ["inbox"]):
                return 200, {"groups": self.inbox, "snoozed": self.snoozed, "more": False, "held_runs": self.held_runs}
            case ("GET", ["errors", name]) if name in self.errors:
                return 200, self.errors[name]
            case ("POST", ["errors", name, "triage"]) if name in self.errors:
                self.errors[name] |= {"state": asked.body["act"], "assignee": asked.body["assignee"]}
                return 200, self.errors[name]
            case ("POST", ["errors", name, "teach"]) if name in self.errors:
                return 200, self.taught
            case ("POST", ["incidents", name, "cause"]):
                return 200, {"incident": name, "cause": asked.body["cause"], "state": "held", "note": "as it was"}
            case ("GET", ["taught"]):
                return 200, self.taught
            case ("DELETE", ["taught", _]):
                return 200, {"version": 2, "patterns": []}
            case ("POST", ["external-events"]):
                return 201, {"id": asked.body["id"], "runs": self.awaited, "repeated": asked.body["id"] == "e-old"}
            case ("GET", ["schedules"]):
                return 200, {"schedules": list(self.schedules.values())}
            case ("GET", ["schedules", name]):
                return 200, self.schedules[name]
            case ("PUT", ["schedules", name]):
                self.schedules[name] = {**asked.body, "name": name, "next": ["2026-05-02T00:00:00.000Z"], "recent": []}
                return 200, self.schedules[name]
            case ("POST", ["schedules", name, act]):
                self.schedules[name]["paused"] = act == "pause"
                return 200, self.schedules[name]
            case ("DELETE", ["schedules", name]):
                return 200, self.schedules.pop(name)
            case ("GET", ["questions"]):
                waiting = asked.query.get("state", ["waiting"]) == ["waiting"]
                return 200, {"questions": [each for each in self.questions if (each["state"] == "waiting") == waiting]}
            case ("GET", ["questions", name]):
                return 200, next(question for question in self.questions if question["id"] == name)
            case ("POST", ["questions", name]):
                known = next(question for question in self.questions if question["id"] == name)
                known |= {"state": "answered", "answer": asked.body["answer"], "answered_by": "alice"}
                return 200, known
            case ("GET", ["approvals"]):
                return 200, {"approvals": self.approvals}
            case ("GET", ["approvals", name]):
                return 200, next(approval for approval in self.approvals if approval["id"] == name)
            case ("POST", ["approvals", name]):
                known = next(approval for approval in self.approvals if approval["id"] == name)
                agreed = asked.body["agree"]
                known |= {"state": "done" if agreed else "refused", "outcome": "forced_complete" if agreed else None}
                return 200, known
            case ("POST", ["jobs", name, "force-complete"]) if self.needs_approval:
                waits = {
                    "id": "3f9a1c7e20b4", "state": "waiting", "words": f"count job {name} as done", "on": name, "owner": "alice",
                    "by": "alice", "why": asked.body["reason"], "at": "2026-05-01T10:00:00.000Z", "until": "2026-05-02T10:00:00.000Z",
                    "answered_by": None, "answer": None, "outcome": None,
                }  # fmt: skip
                self.approvals = [waits]
                return 202, {"waits": waits}
            case ("GET", ["hosts"]):
                return 200, {"hosts": self.hosts}
            case ("GET", ["alerts"]):
                return 200, {"alerts": self.alerts}
            case ("GET", ["sizes"]):
                return 200, self.sizes
            case ("GET", ["overview"]):
                return 200, {"fates": self.fates}
            case ("GET", ["status"]):
                you = {"subject": "alice", "tenant": "physics", "roles": ["operator"]}
                servers = [{"name": "s-1", "url": self.url, "slots": 1024}]
                return 200, {"version": "0.1.0", "you": you, "server": "s-1", "servers": servers, "store": "sqlite", "lease": 600,
                             "requests_waiting": 1, "channels": 2, "jobs": self._count({"by": ["state"]})}  # fmt: skip
            case (_, ["flows" | "runs" as kind, *rest]):
                return self.runs.answer(asked, kind, rest)
            case (_, ["jobs", name, *rest]) if name in self.jobs:
                return self._one(asked, self.jobs[name], rest)
        return 404, f"there is no {asked.path}"

    def _one(self, asked: Request, job: dict[str, Any], rest: list[str]) -> tuple[int, Any]:
        match (asked.method, rest):
            case ("GET", []):
                if self.on_read:
                    self.on_read()
                self.read.set()
                return 200, job
            case ("GET", ["specification"]):
                return 200, self.specification
            case ("GET", ["why-run"]):
                return 200, self.whys[job["id"]]
            case ("GET", ["story"]):
                return 200, self.stories.get(job["id"], {"story": [], "evidence": []})
            case ("GET", ["log"]):
                return (200, self.logs[job["id"]]) if job["id"] in self.logs else (404, "no attempt has ended yet")
            case ("POST", [verb]):
                if self.refuse:
                    return 409, self.refuse
                return self._steer(job, verb, asked.body or {})
        return 404, f"there is no {asked.path}"

    def _steer(self, job: dict[str, Any], verb: str, body: dict[str, Any]) -> tuple[int, Any]:
        if verb in {"release", "force-complete", "force-fail"} and body["expected_attempt"] != job["attempt"]:
            return 409, f"the job has changed: it is at attempt {job['attempt']}"
        if verb == "cancel" and job["state"] == "cancelled":
            return 409, "the job is already cancelled"
        changes: dict[str, dict[str, Any]] = {
            "cancel": {"state": "cancelled", "claim": None},
            "hold": {"held": True, "holders": ["alice"]},
            "continue": {"held": False, "holders": []},
            "release": {"state": "available", "claim": None},
            "retry": {"state": "available"},
            "force-complete": {"state": "forced_complete", "claim": None},
            "force-fail": {"state": "failed", "claim": None},
        }
        job.update(changes[verb])
        return 200, job

    def _submit(self, asked: Request) -> tuple[int, Any]:
        key, body = asked.headers["idempotency-key"], asked.body
        if key in self.keys:
            if self.keys[key][0] != body:
                return 409, "this idempotency key was used for another request"
            return 201, {"jobs": [{"id": name, "created": False} for name in self.keys[key][1]]}
        names = []
        for wanted in body["jobs"]:
            job = job_json(0x1000 + len(self.jobs), index=wanted.get("index"))
            self.put(job)
            names.append(job["id"])
        self.keys[key] = (body, names)
        return 201, {"jobs": [{"id": name, "created": True} for name in names]}

    def _found(self, query: dict[str, list[str]]) -> list[dict[str, Any]]:
        fields = ("id", "state", "owner", "name", "team", "specification", "resource_class", "run")
        jobs = [
            job
            for job in self.jobs.values()
            if all(job.get(attribute) in query[attribute] for attribute in fields if attribute in query)
        ]
        if "held" in query:
            jobs = [job for job in jobs if job["held"] == (query["held"] == ["true"])]
        return jobs

    def _search(self, query: dict[str, list[str]]) -> dict[str, Any]:
        results = self._found(query)
        begin, limit = int(query.get("cursor", ["0"])[0]), int(query.get("limit", ["100"])[0])
        end = begin + limit
        return {"jobs": results[begin:end], "cursor": str(end) if end < len(results) else None}

    def _count(self, query: dict[str, list[str]]) -> dict[str, int]:
        counts: dict[str, int] = {}
        for job in self._found(query):
            value = str(job.get(query["by"][0]))
            counts[value] = counts.get(value, 0) + 1
        return counts


class _Handler(BaseHTTPRequestHandler):
    api: FakeApi
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._do()

    def do_POST(self) -> None:
        self._do()

    def do_PUT(self) -> None:
        self._do()

    def do_DELETE(self) -> None:
        self._do()

    def _do(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        parts = urlsplit(self.path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Request(self.command, parts.path, parse_qs(parts.query), headers, body)
        self.api.requests.append(asked)
        trouble = self.api.troubles.pop(0) if self.api.troubles else Trouble()
        if trouble.status:
            extra = {"Retry-After": trouble.retry_after} if trouble.retry_after is not None else {}
            self._problem(trouble.status, "the store does not answer", extra)
            return
        if parts.path == "/v1/events" or asked.query.get("follow") == ["true"]:
            self._stream()
            return
        status, answer = self.api.answer(asked)
        if trouble.lose_answer:
            self.close_connection = True
        elif status >= 400:
            self._problem(status, answer, {})
        elif isinstance(answer, str):
            self._send(status, answer.encode(), "text/plain; charset=utf-8", {})
        else:
            self._send(status, json.dumps(answer).encode(), "application/json", {})

    def _problem(self, status: int, detail: str, extra: dict[str, str]) -> None:
        body = {"type": "about:blank", "title": "A problem", "status": status, "detail": detail}
        self._send(status, json.dumps(body).encode(), "application/problem+json", extra)

    def _send(self, status: int, body: bytes, kind: str, extra: dict[str, str]) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in extra.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.close_connection = True
        for piece in self.api.streams.pop(0) if self.api.streams else []:
            self.wfile.write(piece)
            self.wfile.flush()
