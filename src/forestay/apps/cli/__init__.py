"""The command line for people and scripts; the `forestay` command offers these commands beside the processes.

Nothing slow is imported here: a command's module only when that command is called, the client only when a command talks to a server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple

import typer

from forestay.apps.cli.command import add_command
from forestay.apps.cli.lazy_commands import CommandGroup, Entry, PackageGroup, RootGroup, built

START = "Start"
JOBS = "Jobs"
FLOWS = "Flows"
FAILURES = "Failures"
FLEET = "Fleet"
ADMIN = "Admin"
PANELS = (START, JOBS, FLOWS, FAILURES, FLEET, ADMIN)


class Group(NamedTuple):
    """A command with sub-commands: what it is for, the functions of the sub-commands, and the one that is the default."""

    summary: str
    commands: Mapping[str, str]
    default: str = "list"


class FormatGroup(NamedTuple):
    """A command for a flow format, named as the format; its sub-commands come from the package of the format."""

    summary: str


_TABLE: dict[str, dict[str, str | Group | FormatGroup]] = {
    START: {
        "try": "incidents.try_out:try_out",
        "init": "admin.init:init",
        "status": "admin.installation:status",
    },
    JOBS: {
        "submit": "jobs.submit:submit",
        "queue": "jobs.queue:queue",
        "jobs": "jobs.jobs:jobs",
        "describe": "jobs.describe:describe",
        "logs": "jobs.logs:logs",
        "story": "jobs.story:story",
        "why-run": "jobs.why_run:why_run",
        "wait": "jobs.wait:wait",
        "events": "admin.installation:events",
        "cancel": "jobs.steer:cancel",
        "hold": "jobs.steer:hold",
        "release": "jobs.steer:release",
        "retry": "jobs.steer:retry",
        "force-complete": "jobs.steer:force_complete",
        "force-fail": "jobs.steer:force_fail",
        "files": Group(
            "Show where files are, and manage their replicas.",
            {
                "list": "data.files:list_files",
                "where": "data.files:where",
                "add": "data.files:add",
                "remove": "data.files:remove",
                "mark-bad": "data.files:mark_bad",
                "mark-good": "data.files:mark_good",
            },
        ),
    },
    FLOWS: {
        "run": "flows.run:run",
        "runs": Group(
            "List, show and control runs of flows.",
            {
                "list": "flows.runs:list_runs",
                "show": "flows.runs:show",
                "history": "flows.history:history",
                "cancel": "flows.control:cancel",
                "suspend": "flows.control:suspend",
                "resume": "flows.control:resume",
                "retry": "flows.control:retry",
                "skip": "flows.control:skip",
                "raise": "flows.triggers:raise_exception",
                "event": "flows.triggers:send_event",
                "export": "flows.export:export",
            },
        ),
        "schedules": Group(
            "List, apply, pause and delete schedules of runs.",
            {
                "list": "flows.schedules:list_schedules",
                "show": "flows.schedules:show",
                "apply": "flows.schedules:apply",
                "pause": "flows.schedules:pause",
                "resume": "flows.schedules:resume",
                "run": "flows.schedules:run",
                "delete": "flows.schedules:delete",
            },
        ),
        "compensations": Group(
            "Register what undoes actions; show and rebind it in runs.",
            {
                "list": "flows.compensations:list_compensations",
                "show": "flows.compensations:show",
                "add": "flows.compensations:add",
                "rebind": "flows.compensations:rebind",
            },
        ),
        "watch": "flows.run:watch",
        "graph": "flows.graph:graph",
        "check": "flows.check:check",
        "sizes": "flows.sizes:sizes",
        "bpel": FormatGroup("Check, run and adapt processes in WS-BPEL 2.0."),
    },
    FAILURES: {
        "inbox": Group(
            "List failures and questions, and answer them.",
            {
                "list": "incidents.inbox:list_inbox",
                "show": "incidents.errors:show",
                "acknowledge": "incidents.errors:acknowledge",
                "assign": "incidents.errors:assign",
                "snooze": "incidents.errors:snooze",
                "resolve": "incidents.errors:resolve",
                "reopen": "incidents.errors:reopen",
                "teach": "incidents.teach:teach",
                "correct": "incidents.teach:correct",
                "taught": "incidents.teach:taught",
                "forget": "incidents.teach:forget",
                "launch": "incidents.inbox:launch",
                "questions": "flows.questions:list_questions",
                "answer": "flows.questions:answer",
            },
        ),
        "explain": "incidents.explain:explain",
        "rules": Group(
            "Show, write, replay and promote rules.",
            {
                "list": "rules.rules:list_sets",
                "show": "rules.rules:show",
                "add": "rules.rules:add",
                "check": "rules.rule_files:check",
                "apply": "rules.rule_files:apply",
                "starter": "rules.rule_files:starter",
                "test": "rules.rules:ask",
                "replay": "rules.replay:replay",
                "promote": "rules.rules:promote",
                "demote": "rules.rules:demote",
                "remove": "rules.rules:remove",
                "propose": "rules.replay:propose",
                "dismiss": "rules.replay:dismiss",
                "fields": "rules.rules:fields",
                "versions": "rules.versions:versions",
                "diff": "rules.versions:diff",
                "rollback": "rules.versions:rollback",
            },
        ),
        "playbooks": Group(
            "Show, check and add playbooks, which rules start.",
            {
                "list": "rules.playbooks:list_playbooks",
                "show": "rules.playbooks:show",
                "add": "rules.playbooks:add",
                "check": "rules.playbooks:check",
            },
        ),
        "packs": Group(
            "Show and test the patterns that find causes.",
            {
                "list": "rules.packs:list_packs",
                "patterns": "rules.packs:patterns",
                "show": "rules.packs:show",
                "test": "rules.packs:run_fixtures",
            },
        ),
        "safeguards": Group(
            "Show what limits rules; stop and resume them.",
            {
                "show": "incidents.safeguards:show",
                "stop": "incidents.safeguards:stop",
                "resume": "incidents.safeguards:resume",
                "try": "incidents.safeguards:try_again",
                "allow": "incidents.safeguards:allow",
            },
            default="show",
        ),
        "approvals": Group(
            "List, approve and reject actions that need an approval.",
            {
                "list": "incidents.approvals:list_approvals",
                "approve": "incidents.approvals:approve",
                "reject": "incidents.approvals:reject",
            },
        ),
        "classify": "rules.classify:classify",
    },
    FLEET: {
        "pilots": Group(
            "List, enrol, drain and revoke pilots.",
            {
                "list": "fleet.pilots:list_pilots",
                "enrol": "fleet.enrol:enrol",
                "drain": "fleet.pilots:drain",
                "revoke": "fleet.pilots:revoke",
            },
        ),
        "hosts": Group(
            "Show which hosts get jobs; close and open hosts.",
            {"list": "fleet.hosts:list_hosts", "close": "fleet.hosts:close", "open": "fleet.hosts:open_host"},
        ),
        "licences": Group(
            "Show licences and their seats; set how many there are.",
            {
                "list": "fleet.licences:list_licences",
                "set": "fleet.licences:set_licence",
                "remove": "fleet.licences:remove_licence",
            },
        ),
        "quotas": Group(
            "Limit what owners and teams use at once, and share fairly.",
            {
                "list": "fleet.quotas:list_quotas",
                "set": "fleet.quotas:set_quota",
                "remove": "fleet.quotas:remove_quota",
                "teams": "fleet.quotas:list_teams",
                "join": "fleet.quotas:join_team",
                "leave": "fleet.quotas:leave_team",
                "shares": "fleet.quotas:list_shares",
                "fair-share": "fleet.quotas:fair_share",
            },
        ),
        "sites": Group(
            "Show the sites that start pilots.",
            {"list": "fleet.sites:list_sites", "show": "fleet.sites:show"},
        ),
        "peers": Group(
            "List, add and remove peer domains.",
            {
                "list": "fleet.peers:list_peers",
                "key": "fleet.peers:key",
                "add": "fleet.peers:add",
                "remove": "fleet.peers:remove",
            },
        ),
    },
    ADMIN: {
        "config": "admin.installation:config",
        "alerts": "admin.installation:alerts",
        "audit": Group(
            "Show and verify the audit log.",
            {"list": "admin.audit:list_entries", "verify": "admin.audit:verify"},
        ),
        "shim": Group(
            "Install, remove and check the sbatch shim.",
            {"status": "admin.shim:status", "install": "admin.shim:install", "remove": "admin.shim:remove"},
            default="status",
        ),
        "deploy": Group(
            "Write the deployment files of this version.",
            {"write": "admin.deploy:write"},
            default="",
        ),
        "plan": "admin.plan:plan",
        "link": "admin.installation:link",
        "revoke": "admin.installation:revoke",
    },
}
"""The commands by help panel, each with its function, `module:function`."""
SCREEN: dict[str, tuple[str, ...]] = {
    START: ("dev", "demo", "doctor", "try", "init", "status"),
    JOBS: ("submit", "queue", "jobs", "logs", "story", "wait", "cancel"),
    FLOWS: ("run", "runs", "watch", "graph", "check"),
    FAILURES: ("inbox", "explain", "rules", "playbooks", "safeguards"),
    FLEET: ("pilots", "hosts"),
}


def _build(name: str, target: str) -> Callable[[], Any]:
    def build() -> Any:
        module, _, function = target.partition(":")
        settings: dict[str, Any] = {}
        if target == "jobs.submit:submit":  # what follows the first word of the command belongs to it, options included
            settings["context_settings"] = {"allow_interspersed_args": False}
        reply = getattr(import_module(f"forestay.apps.cli.{module}"), function)
        return built(name, lambda app: add_command(app, name, **settings)(reply))

    return build


def _build_group(name: str, group: Group) -> Callable[[], Any]:
    table = {sub: Entry("", _build(sub, target)) for sub, target in group.commands.items()}
    return lambda: CommandGroup(name, group.summary, table, default=group.default)


def _build_format(name: str, group: FormatGroup) -> Callable[[], Any]:
    def build(sub: str, reply: Callable[..., int]) -> Callable[[], Any]:
        return lambda: built(sub, lambda app: add_command(app, sub)(reply))

    def table() -> dict[str, Entry]:
        from forestay.apps.flow_formats import InstalledFormats

        commands = InstalledFormats().get(name).commands()
        return {sub: Entry("", build(sub, reply)) for sub, reply in commands.items()}

    return lambda: PackageGroup(name, group.summary, table)


def _builder(name: str, what: str | Group | FormatGroup) -> Callable[[], Any]:
    match what:
        case str():
            return _build(name, what)
        case Group():
            return _build_group(name, what)
        case FormatGroup():
            return _build_format(name, what)


COMMANDS: dict[str, Entry] = {
    name: Entry(panel, _builder(name, what)) for panel, names in _TABLE.items() for name, what in names.items()
}


def in_order(table: Mapping[str, Entry]) -> dict[str, Entry]:
    """The commands in the order of the panels; within a panel in the order of the table."""
    return dict(sorted(table.items(), key=lambda pair: PANELS.index(pair[1].panel)))


class _Commands(RootGroup):
    table = COMMANDS
    screen = SCREEN


app = typer.Typer(
    cls=_Commands, rich_markup_mode=None, pretty_exceptions_enable=False, context_settings={"max_content_width": 100}
)


@app.callback()
def _root() -> None:
    """Commands for users of Forestay."""
