"""The commands that start the processes of operators; heavy imports only when one is started."""

from __future__ import annotations

import gc
import logging
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forestay.apps.cli import ADMIN, START
from forestay.apps.cli.lazy_commands import CommandGroup, Entry, built
from forestay.apps.extras import require
from forestay.apps.hidden_modules import hidden

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


def _logs(*, verbose: bool, audit: bool = True) -> None:
    """Log one line per event on stderr; as JSON if it is not a terminal. Called before the rest is imported, which imports structlog too.

    ``audit``: including the heads of the audit log, which an operator stores with the logs.
    """
    gc.disable()  # until `_run`: objects created while a process is imported and composed stay
    with hidden("rich"):  # structlog would only use it for tracebacks, which we format ourselves
        import structlog

    terminal = sys.stderr.isatty()
    structlog.configure(
        processors=[
            *([] if audit else [_without_audit]),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer(colors=terminal) if terminal else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG if verbose else logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
    )
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, stream=sys.stderr)


def _without_audit(_logger: Any, _method: str, event: Any) -> Any:
    if event.get("event") == "audit":
        import structlog

        raise structlog.DropEvent
    return event


Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")]
Store = Annotated[str | None, typer.Option(help="sqlite:///FILE, postgresql://… or opensearch://HOST:PORT/PREFIX")]


Temporal = Annotated[str | None, typer.Option(help="HOST:PORT of Temporal, which runs flows.")]


def server(
    listen: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on.")] = None,
    store: Store = None,
    lease: Annotated[int | None, typer.Option(help="Seconds after which a silent pilot loses its claims.")] = None,
    verbose: Verbose = False,
) -> None:
    """Run a server. It serves the HTTP interface and the web pages, hands out jobs and takes results. Several may run on one store."""
    require("server", "server")
    from forestay.apps.deferred_models import models_deferred

    _logs(verbose=verbose)
    with models_deferred():
        import fastapi  # noqa: F401 - declares the models of OpenAPI, which only the interface's description uses
    from forestay.apps.config.settings import load
    from forestay.apps.server.app import serve

    _run(serve(load(listen=listen, port=port, store=store, lease=lease)))


def reconciler(
    store: Store = None,
    lease: Annotated[int | None, typer.Option(help="Seconds after which a silent pilot loses its claims.")] = None,
    verbose: Verbose = False,
) -> None:
    """Run a reconciler. It handles orphaned jobs, due retries, alerts and notifications. Several may run on one store."""
    require("reconciler", "server")
    _logs(verbose=verbose)
    from forestay.apps.config.settings import load
    from forestay.apps.reconciler.process import run_reconciler

    _run(run_reconciler(load(store=store, lease=lease)))


def orchestrator(store: Store = None, temporal: Temporal = None, verbose: Verbose = False) -> None:
    """Run an orchestrator. It runs flows on Temporal. Any number may run."""
    require("orchestrator", "server", "flows")
    _logs(verbose=verbose)
    from forestay.apps.config.settings import load
    from forestay.apps.orchestrator.process import run_orchestrator

    _run(run_orchestrator(load(store=store, temporal=temporal)))


def site(
    config: Annotated[Path, typer.Option(help="The site's settings, a TOML file.", show_default=False)],
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Check the settings, the server and the batch system, print what is wrong, and exit."
        ),
    ] = False,
    launcher_config: Annotated[
        bool,
        typer.Option(
            "--launcher-config",
            help="Print the launcher's configuration for jobs that run as their submitters, and exit.",
        ),
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Run a site agent. It starts as many pilots on one batch system as queued jobs need. After a restart it continues where it was."""
    import asyncio

    _logs(verbose=verbose)
    from forestay.apps.config.site_settings import load_site
    from forestay.apps.site.process import check_site, run_site

    settings = load_site(config)
    if launcher_config:
        from forestay.apps.site.launcher_configuration import launcher_configuration

        sys.stdout.write(launcher_configuration(settings, dict(os.environ)))
        raise typer.Exit
    if check:
        wrong = asyncio.run(check_site(settings))
        for problem in wrong:
            sys.stderr.write(f"forestay: {problem}\n")
        if not wrong:
            sys.stdout.write(f"Site {settings.site}: settings, spool, server and batch system are in order.\n")
        raise typer.Exit(1 if wrong else 0)
    _run(run_site(settings))


def pilot(context: typer.Context) -> None:
    """Run a pilot. It claims jobs and runs them on this machine. `forestay pilot --help` lists its options."""
    from forestay_pilot.__main__ import main as pilot_main

    raise typer.Exit(pilot_main(context.args))


def watcher(
    spool: Annotated[Path | None, typer.Option(help="Folder in which the sbatch shim records jobs.")] = None,
    engine: Annotated[str, typer.Option(help="Engine name under which the jobs are recorded.")] = "slurm",
    act: Annotated[
        bool, typer.Option("--act", help="Carry out what rules and people decide. Without it, observe only.")
    ] = False,
    hold: Annotated[
        bool, typer.Option("--hold", help="Hold jobs whose failure no rule answers until a person decides.")
    ] = False,
    every: Annotated[float, typer.Option(min=0.2, max=60, help="Seconds between two polls.")] = 5.0,
    records: Annotated[
        Path | None, typer.Option(help="Folder in which jobs write records of themselves, if they do.")
    ] = None,
    before_end: Annotated[
        bool,
        typer.Option("--before-end", help="Jobs with records that fail wait up to 10 seconds for a decision to end."),
    ] = False,
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
    """Watch users' own Slurm jobs. Reports why a job submitted through the shim failed, and has it run again under its id."""
    _logs(verbose=verbose)
    from forestay.apps.watcher.process import SPOOL, WatcherSettings, run_watcher
    from forestay.client.transport.settings import find_settings

    if before_end and not (act and records):
        raise typer.BadParameter("--before-end needs --act and --records")
    known = find_settings()
    settings = WatcherSettings(
        spool or SPOOL,
        engine,
        act,
        hold,
        every,
        records=records,
        before_end=before_end,
        override_no_requeue=override_no_requeue,
        decide_within=decide_within,
    )
    _run(run_watcher(settings, server=known.server.value, token=known.token.value))


def token(
    subject: Annotated[str, typer.Argument(help="Who the token is for: a person or a service.")],
    role: Annotated[
        list[str] | None,
        typer.Option(
            help="viewer, submitter, operator, rule-author, approver or administrator; for programs engine, site or enrol. Repeatable (submitter)."
        ),
    ] = None,
    tenant: Annotated[str, typer.Option(help="Tenant.")] = "default",
    days: Annotated[int, typer.Option(min=1, max=366, help="Days until it expires.")] = 30,
    out: Annotated[Path | None, typer.Option(help="Write it to this file, readable only by you.")] = None,
) -> None:
    """Create a token, signed with this machine's signing key."""
    require("token", "server")
    from forestay.adapters.private_file import write_private
    from forestay.apps.config.settings import load
    from forestay.apps.operations.tokens import make_token

    settings = load()
    if not settings.key_file.exists():
        sys.stderr.write(
            f"forestay: there is no signing key at {settings.key_file}, so a new one is created; only a server with the same key accepts the token. "
            "Run this where a server runs, as its user and with its FORESTAY_CONFIG and FORESTAY_STATE.\n"
        )
    text = make_token(settings, subject=subject, tenant=tenant, roles=role or ["submitter"], seconds=days * 86_400)
    if out is None:
        sys.stdout.write(text + "\n")
    else:
        write_private(out, text)


def dev(
    folder: Annotated[Path | None, typer.Option("--state", help="State folder.")] = None,
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8470,
    slots: Annotated[int, typer.Option(min=1, max=256, help="Jobs that run at the same time.")] = 2,
    flows: Annotated[Path | None, typer.Option(help="Folder of trusted Python flows, which are run by name.")] = None,
    verbose: Verbose = False,
) -> None:
    """Run everything on this machine, to try it out. Server, orchestrator, reconciler, a pilot and Temporal, on SQLite. Ctrl-C stops it; running jobs start again with the next one."""
    require("dev", "server", "flows")
    _logs(verbose=verbose, audit=verbose)
    from forestay.apps.config.settings import load
    from forestay.apps.dev.process import run_dev

    _run(run_dev(load(state=folder, port=port, flows=flows), slots=slots, verbose=verbose))


def demo(
    auto: Annotated[
        bool, typer.Option("--auto", help="Play it unattended; exit code 1 if an act does not come out as promised.")
    ] = False,
    report: Annotated[Path, typer.Option(help="Where the report is written, one HTML file.")] = Path(
        "forestay-demo.html"
    ),
    keep: Annotated[
        Path | None,
        typer.Option(
            help="An empty folder in which everything is kept: store, logs, outputs. Default: removed at the end."
        ),
    ] = None,
) -> None:
    """Show what Forestay does about failures. Plays five acts on real processes of this machine, which it starts, kills and stops, and writes a report of what was measured."""
    require("demo", "server", "flows")
    _logs(verbose=False, audit=False)
    from forestay.apps.config.settings import load
    from forestay.apps.demo.process import run_demo

    async def play() -> None:
        if not await run_demo(load(), auto=auto, report=report, keep=keep):
            raise typer.Exit(1)

    _run(play())


def doctor(
    folder: Annotated[Path | None, typer.Option("--state", help="State folder.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False,
) -> None:
    """Check an installation and say what to fix. Checks settings, files, store, Temporal, storage, reconcilers, orchestrators, sites and pilots. Exit code 1 if something is wrong."""
    from forestay.apps.doctor import run_doctor

    raise typer.Exit(run_doctor(folder, as_json=as_json))


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]


def notification_channels(as_json: AsJson = False) -> None:
    """List the notification channels. The settings are read as a reconciler reads them: run it where one runs, as its user."""
    import json

    from forestay.apps.config.settings import load

    settings = load()
    if as_json:
        shown = [
            {"name": channel.name, "kind": channel.kind, "where": channel.where}
            for channel in settings.notification_channels
        ]
        sys.stdout.write(json.dumps({"channels": shown}) + "\n")
    for channel in () if as_json else settings.notification_channels:
        sys.stdout.write(f"{channel.name}  {channel.kind}  {channel.where}\n")
    if not settings.notification_channels:
        sys.stderr.write("No notifications are sent: the settings have no [[notification_channels]].\n")


def send_test_notification(
    name: Annotated[str, typer.Argument(metavar="CHANNEL", help="The name of the channel.")], as_json: AsJson = False
) -> None:
    """Send a test notification through a channel. Reports the answer of the other side.

    forestay notifications test ops
    """
    import asyncio
    import json

    from forestay.apps.config.settings import load
    from forestay.ports.errors import PortError, Transient

    require("notifications test", "server")
    from forestay.apps.operations.notification_test import channel_named, send_test

    settings = load()
    channel = channel_named(settings, name)
    try:
        delivery = asyncio.run(send_test(settings, channel))
    except PortError as error:
        if as_json:
            sys.stdout.write(json.dumps({"channel": name, "accepted": False, "detail": str(error)}) + "\n")
        sys.stderr.write(f"forestay: {name} ({channel.kind}, {channel.where}) did not accept it: {error}\n")
        raise typer.Exit(6 if isinstance(error, Transient) else 1) from error
    if as_json:
        sys.stdout.write(json.dumps({"channel": name, "accepted": True, "delivery": delivery}) + "\n")
    else:
        sys.stdout.write(
            f"{name} ({channel.kind}, {channel.where}) accepted notification {delivery}. Check that it arrived.\n"
        )


def restored(
    reason: Annotated[str, typer.Option(help="Which backup it was, and why; recorded in every job's story.")],
    store: Store = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Record that the store was restored from a backup. Run it before anything is started on the store: every claim that pilots may still hold is fenced off."""
    require("restored", "server")
    import asyncio

    from forestay.apps.config.settings import load
    from forestay.apps.operations.restore import restore_store

    settings = load(store=store)
    if not yes:
        if not sys.stdin.isatty():
            sys.stderr.write("forestay: this changes every job that is not final; use --yes\n")
            raise typer.Exit(2)
        typer.confirm("Raise the generation of every job that is not final?", abort=True, err=True)
    done = asyncio.run(restore_store(settings, reason=reason, say=lambda text: typer.echo(text, err=True)))
    sys.stdout.write(
        f"Generation {done.generation}: {done.jobs} jobs, {done.running} of them were running and are available again, "
        f"{done.held} with external effects are held by `restored` until a person releases them.\n"
    )


def prune(
    older_than: Annotated[str, typer.Option(metavar="TIME", help="How long ago they must have ended, such as 30d.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count them.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    store: Store = None,
    temporal: Temporal = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False,
) -> None:
    """Remove old finished jobs from the store. Everything may keep running meanwhile. Jobs of runs that have not ended are kept, as are incidents, rules and files.

    Reconcilers do the same on their own where `FORESTAY_KEEP_DAYS` is set.

    forestay prune --older-than 30d --dry-run
    """
    require("prune", "server")
    import asyncio
    import json

    from forestay.apps.cli.amounts import parse_duration
    from forestay.apps.cli.output import CommandOutput
    from forestay.apps.config.settings import load
    from forestay.apps.operations.prune import prune_store
    from forestay.ports.errors import PortError, Transient

    try:
        seconds = parse_duration(older_than)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--older-than") from error
    if not (yes or dry_run):
        if not sys.stdin.isatty():
            sys.stderr.write("forestay: this removes jobs permanently; use --yes, or count them first with --dry-run\n")
            raise typer.Exit(2)
        typer.confirm(f"Remove every job that ended more than {older_than} ago?", abort=True, err=True)
    settings = load(store=store, temporal=temporal)
    try:
        with CommandOutput().progress("jobs") as bar:
            done = asyncio.run(prune_store(settings, seconds=seconds, dry_run=dry_run, on_progress=bar.of))
    except PortError as error:
        sys.stderr.write(f"forestay: {error}. Jobs removed so far stay removed; run it again for the rest.\n")
        raise typer.Exit(6 if isinstance(error, Transient) else 1) from error
    if as_json:
        sys.stdout.write(json.dumps({**done._asdict(), "dry_run": dry_run}) + "\n")
        return
    verb = "would be removed" if dry_run else "were removed"
    sys.stdout.write(f"{done.removed} jobs {verb}.\n")
    if done.needed:
        why = "belong to runs that have not ended, or their submitters have not been notified yet"
        if not settings.temporal:
            why += "; only Temporal knows whether runs have ended, and none is set (FORESTAY_TEMPORAL)"
        sys.stdout.write(f"{done.needed} kept: they {why}.\n")


def _run(work: Coroutine[Any, Any, None]) -> None:
    import asyncio

    run: Callable[[Coroutine[Any, Any, None]], None] = asyncio.run
    with suppress(ModuleNotFoundError):  # it is in the extra `server`; a watcher has little to do and works without it
        import uvloop

        run = uvloop.run
    # Candidate buffers hold thousands of documents for seconds; going through them after every 700 new objects, as the
    # collector does by default, is a large part of the cost of reading them. Objects that exist now stay: they are never scanned.
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()
    try:
        run(work)
    except asyncio.CancelledError:
        sys.exit(130)


def _build(name: str, function: Callable[..., None], **settings: Any) -> Callable[[], Any]:
    return lambda: built(name, lambda app: _register(app, name, function, settings))


def _register(app: typer.Typer, name: str, function: Callable[..., None], settings: dict[str, Any]) -> None:
    app.command(name, **settings)(function)


def _notifications() -> CommandGroup:
    table = {
        "channels": Entry("", _build("channels", notification_channels)),
        "test": Entry("", _build("test", send_test_notification)),
    }
    return CommandGroup("notifications", "List notification channels, and test one.", table, default="channels")


_ITS_OWN = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""The pilot reads its options itself."""
COMMANDS: dict[str, Entry] = {
    "dev": Entry(START, _build("dev", dev)),
    "demo": Entry(START, _build("demo", demo)),
    "doctor": Entry(START, _build("doctor", doctor)),
    "server": Entry(ADMIN, _build("server", server)),
    "reconciler": Entry(ADMIN, _build("reconciler", reconciler)),
    "orchestrator": Entry(ADMIN, _build("orchestrator", orchestrator)),
    "site": Entry(ADMIN, _build("site", site)),
    "pilot": Entry(ADMIN, _build("pilot", pilot, context_settings=_ITS_OWN)),
    "watcher": Entry(ADMIN, _build("watcher", watcher)),
    "token": Entry(ADMIN, _build("token", token)),
    "notifications": Entry(ADMIN, _notifications),
    "prune": Entry(ADMIN, _build("prune", prune)),
    "restored": Entry(ADMIN, _build("restored", restored)),
}
"""All of these commands, for a group that builds only the one that is called."""
