"""Where one cell of the matrix is run: a tenant of its own with its rules, its hosts and the job that is measured."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

from tests.system.matrix.cut_wire import Wire
from tests.system.matrix.site import FailureSite, Host, until

from forestay.client import ForestayClient
from forestay.client.api.schemas import NewJob, SpecificationJson
from forestay.services.exceptions.decide.decider import FRESH

MEASURED = "measured"
"""The name of the job that a cell is about; others only keep hosts busy."""
WORK = "sleep 0.2 && echo done > made"
"""What the job does when nothing hinders it."""


def nothing() -> None:
    """Nothing goes wrong meanwhile."""


@dataclass
class Plan:
    """A job, what goes wrong with it, and what is to come of it."""

    specification: SpecificationJson
    job: NewJob = field(default_factory=lambda: cast(NewJob, {}))
    meanwhile: Callable[[], None] = nothing
    """Runs beside the submitter."""
    state: str = "completed"
    """How the job ends."""
    attempts: int = 2
    """Of the run with the failure."""
    twice: bool = False
    """Whether one more may have begun: a host was thought lost, and its end came when the job was being handed out again."""
    cause: str = ""
    """Of the incident; empty: there is none."""
    again: Callable[[], SpecificationJson] | None = None
    """The call itself is refused. This fixes what was wrong, and gives what is submitted then."""


@dataclass
class Room:
    """What a scenario may use."""

    site: FailureSite
    tenant: str
    folder: Path
    failing: bool
    """Whether the failure is injected; if not, the same is run for comparison."""
    operator: ForestayClient
    client: ForestayClient
    hosts: list[Host] = field(default_factory=list)
    closing: ExitStack = field(default_factory=ExitStack)

    def spec(self, command: str | list[str] = WORK, **more: Any) -> SpecificationJson:
        words = ["sh", "-c", command] if isinstance(command, str) else command
        return cast(SpecificationJson, {"name": MEASURED, "command": words, "outputs": ["made"], **more})

    def host(self, name: str = "sound", **more: Any) -> Host:
        """A host that is there and ready."""
        host = self.site.host(
            self.tenant, name, outputs=more.pop("outputs", None) or self.folder / f"out-{name}", **more
        )
        self.hosts.append(host)
        until(lambda: [pilot for pilot in self.operator.pilots(state="alive") if pilot["host"] == name], f"host {name}")
        return host

    def busy_host(self, name: str = "spare", *, disk: int = 1 << 32, **more: Any) -> Callable[[], None]:
        """A large host that has something else to do until it is let go: by calling what this gives back."""
        gate = self.folder / f"gate-{name}"
        self.host(name, disk=str(disk), **more)
        spec = cast(SpecificationJson, {"name": f"keeps {name} busy", "command": waiting_for(gate)})
        (other,) = self.operator.submit([cast(NewJob, {"resources": {"disk": disk}})], spec)
        until(lambda: self.operator.job(other["id"])["state"] == "running", "the other job")
        return gate.touch

    def speak_as(self, *roles: str) -> None:
        """The submitter has these roles from now on."""
        self.client = self.closing.enter_context(self.site.client(self.tenant, *roles))

    def reach(self, wire: Wire) -> None:
        """The submitter reaches the server by this way only."""
        self.client = self.closing.enter_context(self.site.client_at(wire.url, self.tenant))

    def rule(self, cause: str, *steps: Mapping[str, object]) -> None:
        """A rule of the tenant's that acts."""
        draft = {
            "type": "abort",
            "condition": f'cause == "{cause}"',
            "conclusion": {"steps": [dict(step) for step in steps]},
            "reference_incident": f"of-{cause}",
            "context": {"cause": cause},
        }
        made = self.operator.add_rule("domain/site", draft)
        self.operator.set_rule_state("domain/site", str(made["rule"]), "active")
        self.known()

    def known(self) -> None:
        """Wait until everyone goes by the newest rules."""
        known = time.monotonic() + FRESH
        until(lambda: time.monotonic() > known, "everyone to know of the rule")

    def measured(self) -> str:
        """The id of the job, as soon as it is there."""
        value = until(self.jobs, "the job")
        return str(value[0]["id"])

    def jobs(self) -> list[Any]:
        return list(self.operator.find_jobs({"name": MEASURED}).jobs)

    def state(self, *states: str) -> None:
        name = self.measured()
        until(lambda: self.operator.job(name)["state"] in states, f"the job to be {states}")

    def incident(self, state: str = "") -> None:
        name = self.measured()
        wanted = {"job": name, "state": state} if state else {"job": name}
        until(lambda: self.operator.find_incidents(wanted).incidents, "the incident")

    def spooled(self, host: Host) -> None:
        """Wait for an end that its pilot keeps."""
        spool = host.jobs.parent / "spool"
        until(lambda: list(spool.glob("*.json")), "the end in the spool")


def waiting_for(gate: Path) -> list[str]:
    return ["sh", "-c", f"while ! test -e {gate}; do sleep 0.02; done"]


@contextmanager
def room(site: FailureSite, *, failing: bool) -> Iterator[Room]:
    """A room that is empty again afterwards, at a site where nothing is broken yet."""
    site.recover()
    tenant, folder = site.tenant(), site.folder / f"room-{uuid4().hex[:8]}"
    folder.mkdir()
    with (
        site.client(tenant) as client,
        site.client(tenant, "operator", "submitter", "administrator", subject="olga") as operator,
    ):
        made = Room(site, tenant, folder, failing, operator, client)
        try:
            with made.closing:
                yield made
        finally:
            for host in made.hosts:
                if host.started.process.poll() is None:
                    host.started.kill()
            shutil.rmtree(folder, ignore_errors=True)
