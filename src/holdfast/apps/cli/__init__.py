"""The command line for people and scripts; `app` is mounted by the `holdfast` command.

Nothing slow is imported here: the client only when a verb talks to a server.
"""

from __future__ import annotations

from collections.abc import Callable

import typer

from holdfast.apps.cli.approve import approve
from holdfast.apps.cli.audit import audit
from holdfast.apps.cli.bpel import bpel
from holdfast.apps.cli.brake import brake
from holdfast.apps.cli.cases import cases
from holdfast.apps.cli.check import check
from holdfast.apps.cli.classify import classify
from holdfast.apps.cli.describe import describe
from holdfast.apps.cli.enrol import enrol
from holdfast.apps.cli.exlets import exlets
from holdfast.apps.cli.explain import explain
from holdfast.apps.cli.export import export
from holdfast.apps.cli.files import files
from holdfast.apps.cli.graph import graph
from holdfast.apps.cli.history import history
from holdfast.apps.cli.hosts import hosts
from holdfast.apps.cli.inbox import inbox
from holdfast.apps.cli.installation import alerts, config, events, link, status
from holdfast.apps.cli.jobs import jobs
from holdfast.apps.cli.logs import logs
from holdfast.apps.cli.packs import packs
from holdfast.apps.cli.peers import peers
from holdfast.apps.cli.pilots import pilots
from holdfast.apps.cli.plan import plan
from holdfast.apps.cli.queue import queue
from holdfast.apps.cli.raising import raise_
from holdfast.apps.cli.rules import rules
from holdfast.apps.cli.run import run, watch
from holdfast.apps.cli.sites import sites
from holdfast.apps.cli.steer import cancel, force_complete, force_fail, hold, release, retry
from holdfast.apps.cli.story import story
from holdfast.apps.cli.submit import submit
from holdfast.apps.cli.verb import verb
from holdfast.apps.cli.wait import wait

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)
JOBS = "Jobs"
STEER = "Steer jobs"
FLOWS = "Flows"
FAULTS = "Faults and rules"
LOOK = "Look at the installation"

# What follows the first word of the command belongs to it, options included.
verb(app, rich_help_panel=JOBS, context_settings={"allow_interspersed_args": False})(submit)
_ROOMS: dict[str, tuple[Callable[..., int | None], ...]] = {
    JOBS: (queue, jobs, describe, story, logs, wait),
    STEER: (cancel, hold, release, retry, force_complete, force_fail),
    FLOWS: (run, watch, cases, history, graph, check, bpel, raise_, export),
    FAULTS: (inbox, approve, explain, classify, packs, rules, exlets),
    LOOK: (files, pilots, hosts, sites, peers, enrol, alerts, events, status, brake, audit, link, config, plan),
}
for panel, functions in _ROOMS.items():
    for function in functions:
        verb(app, rich_help_panel=panel)(function)
