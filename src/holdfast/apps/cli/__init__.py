"""The command line for people and scripts; the `holdfast` command offers these verbs beside the processes.

Nothing slow is imported here: a verb's module only when that verb is called, the client only when a verb talks to a server.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer

from holdfast.apps.cli.lazy_commands import LazyGroup, Register
from holdfast.apps.cli.verb import verb

JOBS = "Jobs"
STEER = "Steer jobs"
FLOWS = "Flows"
FAULTS = "Faults and rules"
LOOK = "Look at the installation"

_MODULES: dict[str, dict[str, str]] = {
    JOBS: {name: name for name in ("submit", "queue", "jobs", "describe", "story", "logs", "wait")},
    STEER: dict.fromkeys(("cancel", "hold", "release", "retry", "force-complete", "force-fail"), "steer"),
    FLOWS: {
        "run": "run",
        "watch": "run",
        "cases": "cases",
        "history": "history",
        "graph": "graph",
        "check": "check",
        "bpel": "bpel",
        "raise": "raising",
        "export": "export",
    },
    FAULTS: {name: name for name in ("inbox", "approve", "explain", "classify", "packs", "rules", "exlets")},
    LOOK: {name: name for name in ("files", "pilots", "hosts", "sites", "peers", "enrol")}
    | dict.fromkeys(("alerts", "events", "status"), "installation")
    | {"brake": "brake", "audit": "audit", "link": "installation", "config": "installation", "plan": "plan"},
}
"""The verbs by where help lists them, each with the module that has its function."""


def _verb(name: str, module: str, panel: str) -> Register:
    def register(app: typer.Typer) -> None:
        settings: dict[str, Any] = {"rich_help_panel": panel}
        if name == "submit":  # what follows the first word of the command belongs to it, options included
            settings["context_settings"] = {"allow_interspersed_args": False}
        function = "raise_" if name == "raise" else name.replace("-", "_")
        verb(app, name, **settings)(getattr(import_module(f"holdfast.apps.cli.{module}"), function))

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
