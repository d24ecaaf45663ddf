"""The command line for people and scripts; the `forestay` command offers these verbs beside the processes.

Nothing slow is imported here: a verb's module only when that verb is called, the client only when a verb talks to a server.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer

from forestay.apps.cli.lazy_commands import LazyGroup, Register
from forestay.apps.cli.verb import verb

JOBS = "Jobs"
STEER = "Steer jobs"
FLOWS = "Flows"
FAULTS = "Faults and rules"
LOOK = "Look at the installation"

_MODULES: dict[str, dict[str, str]] = {
    JOBS: {
        "submit": "jobs.submit",
        "queue": "jobs.queue",
        "jobs": "jobs.jobs",
        "describe": "jobs.describe",
        "story": "jobs.story",
        "logs": "jobs.logs",
        "wait": "jobs.wait",
    },
    STEER: {
        "cancel": "jobs.steer",
        "hold": "jobs.steer",
        "release": "jobs.steer",
        "retry": "jobs.steer",
        "force-complete": "jobs.steer",
        "force-fail": "jobs.steer",
    },
    FLOWS: {
        "run": "flows.run",
        "watch": "flows.run",
        "cases": "flows.cases",
        "history": "flows.history",
        "graph": "flows.graph",
        "check": "flows.check",
        "bpel": "flows.bpel",
        "raise": "flows.raising",
        "export": "flows.export",
    },
    FAULTS: {
        "inbox": "incidents.inbox",
        "approve": "incidents.approve",
        "explain": "incidents.explain",
        "classify": "rules.classify",
        "packs": "rules.packs",
        "rules": "rules.rules",
        "exlets": "rules.exlets",
    },
    LOOK: {
        "files": "data.files",
        "pilots": "fleet.pilots",
        "hosts": "fleet.hosts",
        "sites": "fleet.sites",
        "peers": "fleet.peers",
        "enrol": "fleet.enrol",
        "alerts": "admin.installation",
        "events": "admin.installation",
        "status": "admin.installation",
        "brake": "incidents.brake",
        "audit": "admin.audit",
        "link": "admin.installation",
        "config": "admin.installation",
        "plan": "admin.plan",
    },
}
"""The verbs by where help lists them, each with the module that has its function."""


def _verb(name: str, module: str, panel: str) -> Register:
    def register(app: typer.Typer) -> None:
        settings: dict[str, Any] = {"rich_help_panel": panel}
        if name == "submit":  # what follows the first word of the command belongs to it, options included
            settings["context_settings"] = {"allow_interspersed_args": False}
        function = "raise_" if name == "raise" else name.replace("-", "_")
        verb(app, name, **settings)(getattr(import_module(f"forestay.apps.cli.{module}"), function))

    return register


VERBS: dict[str, Register] = {
    name: _verb(name, module, panel) for panel, names in _MODULES.items() for name, module in names.items()
}


class _Verbs(LazyGroup):
    table = VERBS


app = typer.Typer(cls=_Verbs, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.callback()
def _root() -> None:
    """What users do with jobs and flows."""
