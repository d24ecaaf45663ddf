"""DAGMan's POST script: tells Forestay of a failed node with its evidence, and ends as DAGMan is to take it.

    SCRIPT DEFER 75 60 POST ALL_NODES forestay-dagman-post $JOB $JOBID $RETURN $RETRY $MAX_RETRIES $DAG_STATUS
    RETRY  ALL_NODES 10 UNLESS-EXIT 77

0: the node is done. 1, or the job's own code: it has failed, and DAGMan retries it while it has retries. 77: it has failed permanently. 75: there is no
decision yet; DAGMan asks again after its configured time. Without Forestay everything is as without this script. Standard library only, Python 3.9.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import socket
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from condor_event_log import JobEvents, find_log, read_end, read_job

ENGINE = "dagman"
DONE, AGAIN = 0, 1
SUBMIT_FAILED, REMOVED, PRE_FAILED = -1001, -1002, -1004
AGAIN_VERBS = frozenset({"restart", "redo", "resubmit"})
DONE_VERBS = frozenset({"force-complete", "skip"})
GIVE_UP_VERBS = frozenset({"force-fail", "remove"})
REMOVED_STATUS = 4
"""The DAG is being removed: nobody waits for its requests any more."""


class Away(Exception):
    """Forestay did not answer, or gave an invalid answer: DAGMan continues as without it."""


@dataclass(frozen=True)
class Node:
    """A node's run, as reported by DAGMan."""

    job: str
    jobid: str
    returned: int
    retry: int
    max_retries: int
    dag_status: int

    @property
    def cluster(self) -> int:
        try:
            return int(self.jobid.split(".")[0])
        except ValueError:
            return -1


@dataclass(frozen=True)
class Codes:
    """The exit codes in the DAG file."""

    defer: int
    give_up: int

    def own(self, returned: int) -> int:
        """The node's exit code without us; never one that is equal to another of our codes."""
        if returned == 0:
            return DONE
        code = returned if 0 < returned < 256 else AGAIN
        return AGAIN if code in (self.defer, self.give_up) else code


class Forestay:
    """Interface X over HTTP, with a time limit on all requests together."""

    def __init__(self, server: str, token: str, seconds: float) -> None:
        self.server = server.rstrip("/")
        self.token = token
        self.until = time.monotonic() + seconds

    @property
    def left(self) -> float:
        return self.until - time.monotonic()

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        if self.left <= 0:
            raise Away("no time is left")
        data = json.dumps(body).encode() if body is not None else None
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.server + path, data, headers, method=method)  # noqa: S310 - checked below
        try:
            with urllib.request.urlopen(request, timeout=max(0.2, self.left)) as answer:  # noqa: S310
                document = json.loads(answer.read())
        except urllib.error.HTTPError as error:
            raise Away(f"{error.code} for {path.partition('?')[0]}") from None
        except (OSError, ValueError) as error:
            raise Away(type(error).__name__) from None
        if not isinstance(document, dict):
            raise Away("an answer that is none")
        return document

    def report(self, event: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self.ask("POST", f"/v1/engines/{ENGINE}/events", {"events": [event]})["answers"][0]
        return answer

    def orders(self, run: str, incident: str, wait: float) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        query = urllib.parse.urlencode({"run": run, "incident": incident, "wait": f"{max(0.0, min(wait, 20.0)):.1f}"})
        reply = self.ask("GET", f"/v1/engines/{ENGINE}/orders?{query}")
        return reply["orders"], reply["incidents"].get(incident, {})

    def answer(self, order: str, outcome: str, detail: str = "") -> None:
        self.ask("POST", f"/v1/engines/{ENGINE}/orders/{order}", {"outcome": outcome, "detail": detail})


def run_of(log: Path | None, folder: Path) -> str:
    """The id of a DAG's run, the same for all of its nodes and repetitions: its path, and the first cluster in its log."""
    first = ""
    if log is not None:
        with log.open(encoding="utf-8", errors="replace") as text:
            first = text.readline().strip()[:60]
    place = f"{socket.gethostname()}:{folder}:{log.name if log else ''}:{first}"
    name = log.name[: -len(".nodes.log")] if log else folder.name
    return f"{name[:100]}-{hashlib.sha256(place.encode()).hexdigest()[:16]}"


def event_of(node: Node, job: JobEvents, run: str, flow: str, *, hold: bool) -> dict[str, Any]:
    evidence = job.evidence()
    if node.returned < 0 and node.returned > -1000 and job.signal is None:
        evidence["signal"] = -node.returned
    elif node.returned >= 0 and job.exit_code is None:
        evidence["exit_code"] = node.returned
    if node.returned == SUBMIT_FAILED:
        evidence["scheduler_reason"] = "the submission failed"
        evidence["stage"] = "submit"
    if node.returned == REMOVED:
        evidence.setdefault("scheduler_state", "removed")
    return {
        "id": f"{node.job}:{node.jobid}:{node.retry}".replace(" ", "_")[:128],
        "run": run,
        "flow": flow[:200],
        "task": node.job[:200],
        "kind": "task-aborted",
        "attempt": node.retry + 1,
        "evidence": evidence,
        "labels": {"cluster": node.jobid[:200]},
        "otherwise": "hold" if hold else "go-on",
    }


def changed_needs(order: dict[str, Any], job: JobEvents) -> list[str]:
    """Lines of a submit description that give the next run the needs that a rule requires."""
    lines = []
    needs = order.get("needs") or {}
    for name, asked, unit, word in (
        ("memory", job.memory, 1 << 20, "request_memory"),
        ("disk", job.disk, 1 << 10, "request_disk"),
    ):
        change = needs.get(name)
        if not isinstance(change, dict):
            continue
        wanted = change.get("to") or (asked * change["factor"] if asked and change.get("factor") else None)
        if wanted:
            wanted = min(wanted, change.get("at_most") or wanted)
            lines.append(f"{word} = {int(wanted // unit)}")
    return lines


def obey(order: dict[str, Any], node: Node, job: JobEvents, codes: Codes, folder: Path) -> tuple[str, str, int | None]:
    """The answer to an order, the reason, and the resulting exit code; without one the next order is processed."""
    verb = str(order.get("verb"))
    if verb in AGAIN_VERBS:
        if node.retry >= node.max_retries:
            return "refused", f"DAGMan has no retries left ({node.max_retries}); give the node more with RETRY", None
        lines = changed_needs(order, job)
        if lines:
            (folder / f"{node.job}.forestay.sub").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return "done", "", AGAIN
    if verb in DONE_VERBS:
        return "done", "", DONE
    if verb in GIVE_UP_VERBS:
        return "done", "", codes.give_up
    if verb in ("suspend", "continue"):
        return "done", "", None
    return "refused", f"a POST script cannot do {verb}", None


def decide(asked: Forestay, node: Node, job: JobEvents, event: dict[str, Any], codes: Codes, folder: Path) -> int:
    """The exit code that Forestay decides, or the node's own without it."""
    report = asked.report(event)
    if report["answer"] != "wait":
        return codes.own(node.returned)
    run, incident = str(report["run"]), str(report["incident"] or "")
    while True:
        orders, state = asked.orders(run, incident, asked.left - 1)
        for order in orders:
            if order.get("task") not in ("", None, node.job):
                continue
            outcome, why, code = obey(order, node, job, codes, folder)
            asked.answer(str(order["id"]), outcome, why)
            if code is not None:
                sys.stderr.write(f"Forestay orders {order['verb']} for {node.job}\n")
                return code
        if state.get("closed"):
            return codes.own(node.returned)
        if asked.left < 2:
            sys.stderr.write(f"not decided yet: {state.get('words') or incident}\n")
            return codes.defer if codes.defer else codes.own(node.returned)


def settings_of(args: argparse.Namespace) -> tuple[str, str]:
    """Forestay's address and the token; from a file, since DAG files and command lines can be read by many."""
    place = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "forestay"
    server = args.server or os.environ.get("FORESTAY_SERVER", "")
    if not server and (place / "config.toml").is_file():
        lines = (place / "config.toml").read_text(encoding="utf-8").splitlines()
        known = dict(line.split("=", 1) for line in lines if "=" in line and not line.lstrip().startswith("#"))
        server = next((value.strip().strip("'\"") for name, value in known.items() if name.strip() == "server"), "")
    token_file = Path(args.token_file or os.environ.get("FORESTAY_TOKEN_FILE") or place / "token")
    if not server.startswith(("http://", "https://")):
        raise Away("no server is configured: use --server, or write one into config.toml")
    return server, token_file.read_text(encoding="utf-8").strip()


def arguments() -> argparse.ArgumentParser:
    words = argparse.ArgumentParser(prog="forestay-dagman-post", description="A POST script for DAGMan.")
    words.add_argument("job", help="$JOB")
    words.add_argument("jobid", help="$JOBID")
    words.add_argument("returned", type=int, help="$RETURN")
    words.add_argument("retry", type=int, help="$RETRY")
    words.add_argument("max_retries", type=int, help="$MAX_RETRIES")
    words.add_argument("dag_status", type=int, nargs="?", default=0, help="$DAG_STATUS")
    words.add_argument("--server", default="", help="address of Forestay")
    words.add_argument("--token-file", default="", help="file with the token")
    words.add_argument("--log", type=Path, help="the event log; else the DAG's *.nodes.log in this folder")
    words.add_argument("--flow", default="", help="the name that rules know the DAG by; else the DAG file's")
    words.add_argument("--seconds", type=float, default=25.0, help="how long to wait for a decision at a time")
    words.add_argument("--defer", type=int, default=75, help="exit code of SCRIPT DEFER; 0: there is none")
    words.add_argument("--give-up", type=int, default=77, help="exit code of RETRY UNLESS-EXIT")
    words.add_argument("--hold", action="store_true", help="a failure that no rule answers waits for a person")
    return words


def main(argv: Sequence[str] | None = None) -> int:
    # DAGMan passes -9 and -1002 unchanged, and they are not options.
    args = arguments().parse_args(list(sys.argv[1:] if argv is None else argv))
    node = Node(args.job, args.jobid, args.returned, args.retry, args.max_retries, args.dag_status)
    codes = Codes(args.defer, args.give_up)
    if node.returned == 0 or node.returned == PRE_FAILED or node.dag_status == REMOVED_STATUS:
        return codes.own(node.returned)
    try:
        folder = Path.cwd()
        server, token = settings_of(args)
        log = args.log or find_log(folder, node.cluster)
        job = read_job(read_end(log), node.cluster) if log else JobEvents()
        run = run_of(log, folder)
        flow = args.flow or (log.name.split(".dag")[0] if log else folder.name)
        event = event_of(node, job, run, flow, hold=args.hold)
        return decide(Forestay(server, token, args.seconds), node, job, event, codes, folder)
    except Exception as error:  # whatever the error: the DAG continues as it would without us
        sys.stderr.write(f"Forestay was not asked: {error or type(error).__name__}\n")
        return codes.own(node.returned)


if __name__ == "__main__":
    sys.exit(main())
