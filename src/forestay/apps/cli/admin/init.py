"""`forestay init`: what one of three ways to use Forestay needs, written into a folder, with a checklist. No server is needed."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from forestay.apps.cli.admin import shim
from forestay.apps.cli.admin.deploy import write_shipped
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.session import Session
from forestay.formats.text.shipped_folder import shipped_folder

CHECKLIST = "CHECKLIST.md"
EXAMPLE = "https://forestay.example.org"
_ADDRESS = re.compile(r"https?://[^\s\"\\$`]+")
_ENDPOINT = re.compile(r"[\w.\-\[\]:]+:\d+")


class Way(StrEnum):
    """A way to use Forestay."""

    OWN_JOBS = "own-jobs"
    LOGIN_NODE = "login-node"
    SITE = "site"


_WAYS = {
    Way.OWN_JOBS: "watch my own sbatch jobs",
    Way.LOGIN_NODE: "watch the sbatch jobs of a login node",
    Way.SITE: "run jobs and flows for a site",
}
_UNITS = {
    Way.OWN_JOBS: (),
    Way.LOGIN_NODE: ("forestay-watcher.service", "forestay.sysusers"),
    Way.SITE: (
        "forestay-server.service",
        "forestay-reconciler.service",
        "forestay-orchestrator.service",
        "forestay-pilot@.service",
        "forestay-site@.service",
        "forestay.sysusers",
        "forestay.toml",
    ),
}


@dataclass(frozen=True, slots=True)
class InitAnswers:
    """The answers by which the files are written."""

    way: Way
    server: str = EXAMPLE
    act: bool = False
    temporal: str = ""
    """The address of Temporal; empty: a site without flows."""


def init(
    session: Session,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where to write; a new or an empty folder.")],
    way: Annotated[
        Way | None,
        typer.Option("--for", help="Watch your own sbatch jobs, watch a login node, or run a site. Asked if missing."),
    ] = None,
    act: Annotated[
        bool, typer.Option("--act", help="The watcher carries out what rules and people decide, from the start.")
    ] = False,
    temporal: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Of a site: its Temporal server, which flows need.")
    ] = None,
) -> int:
    """Write settings, units and a checklist for what you want. Scripts that install and remove them are among the files. Asks three questions on a terminal.

    forestay init ~/forestay --for own-jobs
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        session.out.complain(f"{folder} exists and is not an empty folder; choose another one")
        return ExitCode.CONFLICT
    answers = _ask(way, session.options.server, act=act, temporal=temporal)
    where = folder.absolute()
    if re.search(r"[\s\"\\$`]", str(where)):
        raise typer.BadParameter("its path has a space or a character that shells read; choose another one")
    written = files_for(answers, where)
    for name, text in written.items():
        write_shipped(where / name, text.encode())
    if answers.way is Way.OWN_JOBS:
        installed = shim.install(session, where / "shim")
        if installed != ExitCode.OK:
            return installed
        (where / "spool" / "new").mkdir(parents=True, mode=0o700)
    if session.out.as_json:
        session.out.document({"folder": str(where), "for": answers.way.value, "files": sorted(written)})
    else:
        session.out.say(f"Written to {where}. What to do next is in {where / CHECKLIST}:")
        session.out.data(written[CHECKLIST].rstrip())
    return ExitCode.OK


def files_for(answers: InitAnswers, folder: Path) -> dict[str, str]:
    """The files for one way, by name."""
    deploy = shipped_folder("deploy")
    templates = {entry.name: entry.read_text() for entry in (deploy / "init" / answers.way.value).iterdir()}
    units = {name: (deploy / "systemd" / name).read_text() for name in _UNITS[answers.way]}
    if "forestay.toml" in units:
        units["forestay.toml"] = _settings(units["forestay.toml"], answers)
    flows = bool(answers.temporal)
    values = {
        "FOLDER": str(folder),
        "SERVER": answers.server,
        "OPTIONS": "--act" if answers.act else "",
        "MODE": "acts on what rules and people decide" if answers.act else "observes only",
        "UNITS": "forestay-server forestay-reconciler" + (" forestay-orchestrator" if flows else ""),
        "FLOWS": f"A namespace of Temporal at {answers.temporal}: `temporal operator namespace create --address {answers.temporal} --namespace forestay --retention 30d`"
        if flows
        else "No Temporal server was named, so this site runs jobs without flows. To add flows later, set `temporal` in `/etc/forestay/forestay.toml` and start `forestay-orchestrator`.",
    }
    filled = {
        name: re.sub(r" ?@([A-Z]+)@", lambda found: _value(found, values), text) for name, text in templates.items()
    }
    return filled | units


def _value(found: re.Match[str], values: dict[str, str]) -> str:
    value = values[found[1]]
    return f" {value}" if value and found[0].startswith(" ") else value


def _settings(text: str, answers: InitAnswers) -> str:
    """The example settings with the answers in them."""
    text = re.sub(r"^url = .*$", f'url = "{answers.server}"', text, flags=re.M)
    if answers.temporal:
        return re.sub(r"^temporal = .*$", f'temporal = "{answers.temporal}"', text, flags=re.M)
    return re.sub(r"^(temporal|temporal_namespace|task_queue) = .*\n", "", text, flags=re.M)


def _ask(way: Way | None, server: str | None, *, act: bool, temporal: str | None) -> InitAnswers:
    """The three answers: from options, or from prompts on a terminal."""
    asking = way is None and sys.stdin.isatty()
    if way is None:
        if not asking:
            raise typer.BadParameter(f"say which: {', '.join(Way)}", param_hint="--for")
        for number, (known, words) in enumerate(_WAYS.items(), 1):
            typer.echo(f"  {number}  {words} ({known})", err=True)
        numbers = {str(number): known for number, known in enumerate(Way, 1)}
        while way is None:
            way = numbers.get(typer.prompt("What do you want to do (1, 2 or 3)", err=True).strip())
    if asking and server is None and way is not Way.OWN_JOBS:
        server = typer.prompt("Address of the server", default=EXAMPLE, err=True)
    if asking and way is Way.SITE and temporal is None:
        temporal = typer.prompt("Temporal, as host:port (empty: jobs without flows)", default="", err=True)
    if asking and way is not Way.SITE and not act:
        act = typer.confirm("May the watcher act on what rules decide (no: observe only)", default=False, err=True)
    if server is not None and not _ADDRESS.fullmatch(server):
        raise typer.BadParameter(f"{server!r} is not an address such as {EXAMPLE}", param_hint="--server")
    if temporal and not _ENDPOINT.fullmatch(temporal):
        raise typer.BadParameter(f"{temporal!r} is not like 127.0.0.1:7233", param_hint="--temporal")
    return InitAnswers(way, server or EXAMPLE, act, temporal or "")
