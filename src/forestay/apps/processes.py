"""The processes that operators start, as commands; heavy imports only once one is started."""

from __future__ import annotations

import gc
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forestay.apps.cli.lazy_commands import Register
from forestay.apps.hidden_modules import hidden

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from typer.models import CommandInfo

app = typer.Typer()
PROCESSES = "Processes"


def _logs(*, verbose: bool) -> None:
    """One line an event on stderr; JSON when nobody looks. Before the rest is imported, which imports structlog too."""
    gc.disable()  # until `_run`: what is made while a process is imported and put together stays
    with hidden("rich"):  # structlog would only use it for tracebacks, which we format ourselves
        import structlog

    terminal = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer(colors=terminal) if terminal else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG if verbose else logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
    )
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, stream=sys.stderr)


Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Say more.")]
Store = Annotated[str | None, typer.Option(help="sqlite:///FILE, postgresql://… or opensearch://HOST:PORT/PREFIX")]


Temporal = Annotated[str | None, typer.Option(help="HOST:PORT of Temporal, for cases.")]


@app.command(rich_help_panel=PROCESSES)
def server(
    listen: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on.")] = None,
    store: Store = None,
    lease: Annotated[int | None, typer.Option(help="Seconds a silent pilot keeps its claims.")] = None,
    verbose: Verbose = False,
) -> None:
    """Run one server: the HTTP interface, claims, ends and beats. Several may run on one store."""
    from forestay.apps.deferred_models import models_deferred

    _logs(verbose=verbose)
    with models_deferred():
        import fastapi  # noqa: F401 - declares the models of OpenAPI, which only the interface's description uses
    from forestay.apps.config.settings import load
    from forestay.apps.server.app import serve

    _run(serve(load(listen=listen, port=port, store=store, lease=lease)))


@app.command(rich_help_panel=PROCESSES)
def keeper(
    store: Store = None,
    lease: Annotated[int | None, typer.Option(help="Seconds a silent pilot keeps its claims.")] = None,
    verbose: Verbose = False,
) -> None:
    """Run one keeper: orphans, alerts and callbacks. Several may run on one store."""
    _logs(verbose=verbose)
    from forestay.apps.config.settings import load
    from forestay.apps.reconciler.process import keep

    _run(keep(load(store=store, lease=lease)))


@app.command(rich_help_panel=PROCESSES)
def worker(store: Store = None, temporal: Temporal = None, verbose: Verbose = False) -> None:
    """Run one worker: cases and their shards, on Temporal. Any number may run."""
    _logs(verbose=verbose)
    from forestay.apps.config.settings import load
    from forestay.apps.orchestrator.process import work

    _run(work(load(store=store, temporal=temporal)))


@app.command(rich_help_panel=PROCESSES)
def site(
    config: Annotated[Path, typer.Option(help="The site's settings, a TOML file.", show_default=False)],
    check: Annotated[
        bool, typer.Option("--check", help="Look at settings, server and batch system, say what is wrong, and end.")
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Run a site agent: it sends pilots to one batch system. As many as queued jobs need. Ended and started again it goes on."""
    import asyncio

    _logs(verbose=verbose)
    from forestay.apps.config.site_settings import load_site
    from forestay.apps.site.process import check_site, keep_site

    settings = load_site(config)
    if check:
        wrong = asyncio.run(check_site(settings))
        for one in wrong:
            sys.stderr.write(f"forestay: {one}\n")
        if not wrong:
            sys.stdout.write(f"Site {settings.site} is in order: settings, spool, server and batch system.\n")
        raise typer.Exit(1 if wrong else 0)
    _run(keep_site(settings))


@app.command(
    rich_help_panel=PROCESSES,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
)
def pilot(context: typer.Context) -> None:
    """Run a pilot, which claims jobs and runs them here. `forestay pilot --help` lists its options."""
    from forestay_pilot.__main__ import main as pilot_main

    raise typer.Exit(pilot_main(context.args))


@app.command(rich_help_panel=PROCESSES)
def watcher(
    spool: Annotated[Path | None, typer.Option(help="Where the sbatch shim leaves word.")] = None,
    engine: Annotated[str, typer.Option(help="The name under which the jobs are kept.")] = "slurm",
    act: Annotated[bool, typer.Option("--act", help="Do what rules and people order; otherwise only look on.")] = False,
    hold: Annotated[bool, typer.Option("--hold", help="A fault that no rule answers waits for a person.")] = False,
    every: Annotated[float, typer.Option(min=0.2, max=60, help="Seconds between looks.")] = 5.0,
    records: Annotated[Path | None, typer.Option(help="Where jobs write records of themselves, if they do.")] = None,
    override_no_requeue: Annotated[
        bool,
        typer.Option("--override-no-requeue", help="Also recover jobs that were submitted with --no-requeue."),
    ] = False,
    decide_within: Annotated[
        float,
        typer.Option(
            min=5, max=3600, help="Seconds after which a failed job that nobody decided on is shown as failed."
        ),
    ] = 120.0,
    verbose: Verbose = False,
) -> None:
    """Look after users' own Slurm jobs. Those that went through the shim: say why one failed, and have it run again under its id."""
    _logs(verbose=verbose)
    from forestay.apps.watcher.process import SPOOL, WatcherSettings, watch
    from forestay.client.transport.settings import find_settings

    known = find_settings()
    settings = WatcherSettings(
        spool or SPOOL,
        engine,
        act,
        hold,
        every,
        records=records,
        override_no_requeue=override_no_requeue,
        decide_within=decide_within,
    )
    _run(watch(settings, server=known.server.value, token=known.token.value))


@app.command(rich_help_panel=PROCESSES)
def token(
    subject: Annotated[str, typer.Argument(help="Whose token it is: a person or a service.")],
    role: Annotated[
        list[str] | None,
        typer.Option(
            help="viewer, submitter, operator, rule-author, approver or administrator; of programs engine, site or enrol. Repeatable; submitter unless given."
        ),
    ] = None,
    tenant: Annotated[str, typer.Option(help="The tenant it is for.")] = "default",
    days: Annotated[int, typer.Option(min=1, max=366, help="How long it is good.")] = 30,
    out: Annotated[Path | None, typer.Option(help="Write it to this file, readable by you alone.")] = None,
) -> None:
    """Make a token, signed by this machine's signing key."""
    from forestay.adapters.private_file import write_private
    from forestay.apps.config.settings import load
    from forestay.apps.operations.tokens import make_token

    settings = load()
    if not settings.key_file.exists():
        sys.stderr.write(
            f"forestay: there is no signing key at {settings.key_file}, so one is made; only a server with this very key takes the token. "
            "Run this where a server runs, as its user and with its FORESTAY_CONFIG and FORESTAY_STATE.\n"
        )
    text = make_token(settings, subject=subject, tenant=tenant, roles=role or ["submitter"], seconds=days * 86_400)
    if out is None:
        sys.stdout.write(text + "\n")
    else:
        write_private(out, text)


@app.command(rich_help_panel=PROCESSES)
def dev(
    folder: Annotated[Path | None, typer.Option("--state", help="Where everything is kept.")] = None,
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8470,
    slots: Annotated[int, typer.Option(min=1, max=256, help="Jobs that run at once.")] = 2,
    flows: Annotated[
        Path | None, typer.Option(help="Folder of Python flows that you trust; run by their names.")
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Run everything on a laptop. Server, worker, keeper, a pilot and Temporal, on SQLite. Ctrl-C stops it; nothing is lost."""
    _logs(verbose=verbose)
    from forestay.apps.config.settings import load
    from forestay.apps.dev.process import run_dev

    _run(run_dev(load(state=folder, port=port, flows=flows), slots=slots, verbose=verbose))


@app.command(rich_help_panel="Look at the installation")
def doctor(
    folder: Annotated[Path | None, typer.Option("--state", help="Where everything is kept.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout.")] = False,
) -> None:
    """Say what is wrong with an installation, and what to do. Looks at settings, files, store, Temporal, storage, keepers, workers, sites and pilots. Exit code 1 if something is."""
    from forestay.apps.doctor import run_doctor

    raise typer.Exit(run_doctor(folder, as_json=as_json))


@app.command(rich_help_panel="Look at the installation")
def receivers(
    action: Annotated[str, typer.Argument(metavar="[list|try]", help="List them, or send one a letter.")] = "list",
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="With try: which one.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout.")] = False,
) -> None:
    """Show who is told of notices, or `try` one.

    The settings are read as a keeper reads them: run it where a keeper runs, as its user. `try` sends one letter that says that it is a trial, and tells what came back.

    forestay receivers try ops
    """
    import asyncio
    import json

    from forestay.apps.config.settings import load
    from forestay.apps.operations.try_receiver import receiver_named, try_receiver
    from forestay.ports.errors import PortError, Transient

    settings = load()
    if action == "list":
        if as_json:
            told = [{"name": one.name, "kind": one.kind, "where": one.where} for one in settings.receivers]
            sys.stdout.write(json.dumps({"receivers": told}) + "\n")
        for one in () if as_json else settings.receivers:
            sys.stdout.write(f"{one.name}  {one.kind}  {one.where}\n")
        if not settings.receivers:
            sys.stderr.write("Nobody is told: the settings have no [[receivers]].\n")
        return
    if action != "try" or not name:
        raise typer.BadParameter("say `list`, or `try` and the name of a receiver")
    table = receiver_named(settings, name)
    try:
        delivery = asyncio.run(try_receiver(settings, table))
    except PortError as error:
        if as_json:
            sys.stdout.write(json.dumps({"receiver": name, "taken": False, "detail": str(error)}) + "\n")
        sys.stderr.write(f"forestay: {name} ({table.kind}, {table.where}) did not take it: {error}\n")
        raise typer.Exit(6 if isinstance(error, Transient) else 1) from error
    if as_json:
        sys.stdout.write(json.dumps({"receiver": name, "taken": True, "delivery": delivery}) + "\n")
    else:
        sys.stdout.write(f"{name} ({table.kind}, {table.where}) took letter {delivery}. Is it there?\n")


@app.command(rich_help_panel="Look at the installation")
def restored(
    reason: Annotated[str, typer.Option(help="Which backup it was, and why; kept in every job's story.")],
    store: Store = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Say that the store was brought back from a backup. Before anything is started on it: every claim that pilots may still hold is fenced off."""
    import asyncio

    from forestay.apps.config.settings import load
    from forestay.apps.operations.restored import store_restored

    settings = load(store=store)
    if not yes:
        if not sys.stdin.isatty():
            sys.stderr.write("forestay: this changes every job that is not final; say --yes\n")
            raise typer.Exit(2)
        typer.confirm("Raise the generation of every job that is not final?", abort=True, err=True)
    done = asyncio.run(store_restored(settings, reason=reason, say=lambda text: typer.echo(text, err=True)))
    sys.stdout.write(
        f"Generation {done.generation}: {done.jobs} jobs, {done.running} of them were running and are to be had again, "
        f"{done.held} with effects outside are held by `restored` until a person lets them go on.\n"
    )


@app.command(rich_help_panel="Look at the installation")
def prune(
    older_than: Annotated[str, typer.Option(metavar="TIME", help="How long ago they must have ended, such as 30d.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count them.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    store: Store = None,
    temporal: Temporal = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout.")] = False,
) -> None:
    """Remove jobs that ended long ago from the store. Everything may go on running meanwhile. Jobs of cases that have not ended stay, as do incidents, rules and files.

    Keepers do the same by themselves where `FORESTAY_KEEP_DAYS` says for how long.

    forestay prune --older-than 30d --dry-run
    """
    import asyncio
    import json

    from forestay.apps.cli.amounts import parse_duration
    from forestay.apps.cli.output import Output
    from forestay.apps.config.settings import load
    from forestay.apps.operations.prune import prune_store
    from forestay.ports.errors import PortError, Transient

    try:
        seconds = parse_duration(older_than)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--older-than") from error
    if not (yes or dry_run):
        if not sys.stdin.isatty():
            sys.stderr.write("forestay: this removes jobs for good; say --yes, or look first with --dry-run\n")
            raise typer.Exit(2)
        typer.confirm(f"Remove every job that ended more than {older_than} ago?", abort=True, err=True)
    settings = load(store=store, temporal=temporal)
    try:
        with Output().progress("jobs") as bar:
            done = asyncio.run(prune_store(settings, seconds=seconds, dry_run=dry_run, told=bar.of))
    except PortError as error:
        sys.stderr.write(f"forestay: {error}. What was removed is removed; run it again for the rest.\n")
        raise typer.Exit(6 if isinstance(error, Transient) else 1) from error
    if as_json:
        sys.stdout.write(json.dumps({**done._asdict(), "dry_run": dry_run}) + "\n")
        return
    verb = "would be removed" if dry_run else "were removed"
    sys.stdout.write(f"{done.removed} jobs {verb}.\n")
    if done.needed:
        why = "belong to cases that have not ended, or their submitters are still to be told"
        if not settings.temporal:
            why += "; whether cases have ended only Temporal knows, and none is set (FORESTAY_TEMPORAL)"
        sys.stdout.write(f"{done.needed} stay: they {why}.\n")


def _run(work: Coroutine[Any, Any, None]) -> None:
    import asyncio

    import uvloop

    # Windows hold thousands of documents that stay for seconds; to go through them after every 700 new objects, as the
    # collector does by default, is a good part of what reading them costs. What is there now stays: it is never looked at.
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()
    try:
        uvloop.run(work)
    except asyncio.CancelledError:
        sys.exit(130)


def _command(info: CommandInfo) -> Register:
    return lambda target: target.registered_commands.append(info)


COMMANDS: dict[str, Register] = {
    info.name or info.callback.__name__: _command(info) for info in app.registered_commands if info.callback is not None
}
"""All of the above by name, for a group that builds only the command that is called."""
