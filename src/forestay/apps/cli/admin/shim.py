"""`forestay shim`: installs the shim in front of Slurm's commands, removes it, and reports which `sbatch` a user gets."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from forestay.apps.cli.amounts import number_of
from forestay.apps.cli.columns import Column
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.session import Session
from forestay.formats.text.shipped_folder import shipped_folder

COMMANDS = ("sbatch", "squeue", "sacct", "scontrol", "scancel")
PROGRAMS = ("forestay-shim", "forestay-payload", "forestay-record", "forestay-ask")
SPOOL = Path("/var/spool/forestay/shim")

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the shim is, such as /opt/forestay/shim.")]


def shipped() -> Path:
    """The folder of the shim that comes with this version."""
    return Path(str(shipped_folder("shim")))


def install(
    session: Session,
    folder: Folder,
    records: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Jobs write records of themselves here; shared by nodes and watcher."),
    ] = None,
) -> int:
    """Install the shim, or the newer version of it, in a folder. It acts for whoever has the folder first in PATH.

    forestay shim install /opt/forestay/shim
    """
    strangers = [name for name in COMMANDS if (folder / name).exists() and not _is_ours(folder / name)]
    if strangers:
        session.out.complain(f"{folder} has a {strangers[0]} that is not the shim's; choose a folder of its own")
        return ExitCode.CONFLICT
    # It installs itself in the same way where there is no Python.
    with_records = [str(records.absolute())] if records else []
    ran = subprocess.run(  # noqa: S603 - our own program
        ["/bin/sh", str(shipped() / "forestay-shim"), "--install", str(folder.absolute()), *with_records],
        check=False,
        capture_output=True,
        text=True,
    )
    if ran.returncode != 0:
        session.out.complain(ran.stderr.strip() or "the shim was not installed")
        return ExitCode.FAILED
    session.out.say(f"Installed. In the profile of its users: export PATH={folder.absolute()}:$PATH")
    return ExitCode.OK


def remove(session: Session, folder: Folder) -> int:
    """Remove the shim from a folder. Jobs that went through it keep their records in the spool.

    forestay shim remove /opt/forestay/shim
    """
    if not (folder / "forestay-shim").exists():
        session.out.complain(f"there is no shim in {folder}")
        return ExitCode.NOT_FOUND
    # The commands first: a command without its program would fail.
    for name in (*(name for name in COMMANDS if _is_ours(folder / name)), *PROGRAMS, "records"):
        (folder / name).unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()
    session.out.say(f"Removed. {folder} may be taken out of PATH.")
    return ExitCode.OK


def status(
    session: Session,
    spool: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="The spool, if it is not where the shim has it.")
    ] = None,
) -> int:
    """Show what sbatch, squeue, sacct, scontrol and scancel are for you, and whether a watcher acts. Exit code 1 if one of them bypasses the shim.

    forestay shim status
    """
    rows = [(name, *_seen(name)) for name in COMMANDS]
    place = spool or Path(os.environ.get("FORESTAY_SHIM_SPOOL") or SPOOL)
    watching = _watching(place)
    if session.out.as_json:
        commands = [
            {"name": name, "shim": shim, "slurm": real, "current": current} for name, shim, real, current in rows
        ]
        session.out.document({"commands": commands, "spool": str(place), "watcher": watching, "jobs": _jobs(place)})
    else:
        columns = [Column("COMMAND"), Column("SHIM"), Column("SLURM'S OWN"), Column("VERSION")]
        session.out.table(
            columns,
            [
                [name, shim or "-", real or "not found", _version(shim, current=current)]
                for name, shim, real, current in rows
            ],
        )
        session.out.data(f"Spool {place}: {_counted(place)}; {watching}.")
    return ExitCode.OK if all(shim and real for _, shim, real, _ in rows) else ExitCode.FAILED


def _is_ours(path: Path) -> bool:
    return path.is_symlink() and os.readlink(path) == "forestay-shim"


def _on_path(name: str) -> Iterator[Path]:
    for part in os.environ.get("PATH", "").split(os.pathsep):
        path = Path(part or ".") / name
        if path.is_file() and os.access(path, os.X_OK):
            yield path


def _seen(name: str) -> tuple[str, str, bool]:
    """The shim that a user calls by this name, if it is one; Slurm's own command; whether the shim is of this version."""
    found = list(_on_path(name))
    shims = [path for path in found if (path.parent / "forestay-shim").exists()]
    real = next((path for path in found if path not in shims), None)
    own = os.environ.get("FORESTAY_SHIM_REAL")
    slurm = shutil.which(name, path=own) if own else (str(real) if real else None)
    if not found or found[0] not in shims:
        return "", slurm or "", False
    current = (found[0].parent / "forestay-shim").read_bytes() == (shipped() / "forestay-shim").read_bytes()
    return str(found[0]), slurm or "", current


def _version(shim: str, *, current: bool) -> str:
    if not shim:
        return "-"
    return "this" if current else "another; install it again"


def _jobs(spool: Path) -> int | None:
    try:
        return sum(1 for path in (spool / "new").iterdir() if path.name[:1].isdecimal())
    except OSError:
        return None


def _counted(spool: Path) -> str:
    jobs = _jobs(spool)
    if jobs is None:
        return "not readable" if os.path.lexists(spool) else "does not exist"
    return f"{number_of(jobs, 'job')} recorded"


def _watching(spool: Path) -> str:
    """Whether failed jobs are shown as running now, in words."""
    try:
        until = int((spool / "watch").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return "no watcher acts, so everything is shown as Slurm shows it"
    if until <= time.time():
        return "the watcher has not renewed its promise to act, so everything is shown as Slurm shows it"
    return "a watcher acts: a failed job is shown as running until it is decided on"
