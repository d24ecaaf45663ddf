"""`forestay deploy write`: the deployment files that come with this version, into a folder. No server is needed."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatch
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath
from typing import Annotated

import typer

from forestay.apps.cli.amounts import number_of
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.session import Session
from forestay.formats.text.shipped_folder import shipped_folder

PARTS = ("systemd", "compose", "helm", "apptainer", "prometheus", "grafana", "kubernetes", "launcher", "shim")


def write(
    session: Session,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where to write them; created if it is missing.")],
    parts: Annotated[
        list[str] | None,
        typer.Option("--part", metavar="PART", help=f"Only this part: {', '.join(PARTS)}. Repeatable."),
    ] = None,
) -> int:
    """Write the deployment files of this version. They are systemd units, the compose file, the Helm chart, the Apptainer definition of pilots, alerts, dashboards, a site agent on Kubernetes, the launcher for pilots of users, and the shim. Files that differ are never overwritten.

    forestay deploy write forestay-deploy
    """
    unknown = [part for part in parts or () if part not in PARTS]
    if unknown:
        raise typer.BadParameter(f"{unknown[0]!r} is not one of {', '.join(PARTS)}", param_hint="--part")
    files = dict(_shipped(parts or PARTS, whole=not parts))
    different = [path for path, content in files.items() if _differs(folder / path, content)]
    if different:
        session.out.complain(f"{folder / different[0]} exists and is different; choose another folder, or remove it")
        return ExitCode.CONFLICT
    for path, content in files.items():
        write_shipped(folder / path, content)
    if session.out.as_json:
        session.out.document({"folder": str(folder), "files": [str(path) for path in files]})
    else:
        session.out.say(f"{number_of(len(files), 'file')} in {folder}. See docs/how-to/install.md.")
    return ExitCode.OK


def write_shipped(target: Path, content: bytes) -> None:
    """Write one file of an installation; the command is refused if that is not possible."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        # An installation from a wheel loses the files' executable bits.
        target.chmod(0o755 if content.startswith(b"#!") else 0o644)
    except OSError as error:
        raise typer.BadParameter(f"{target} cannot be written: {error.strerror}") from error


def _shipped(parts: list[str] | tuple[str, ...], *, whole: bool) -> Iterator[tuple[PurePosixPath, bytes]]:
    deploy = shipped_folder("deploy")
    for part in parts:
        source = shipped_folder("shim") if part == "shim" else deploy / part
        yield from _files(source, PurePosixPath(part))
    if whole:
        yield PurePosixPath("Containerfile"), (deploy / "Containerfile").read_bytes()


def _files(folder: Traversable, at: PurePosixPath) -> Iterator[tuple[PurePosixPath, bytes]]:
    # What an installation compiles is no file of ours.
    ignored = ["__pycache__", *_ignored(folder)]
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if any(fnmatch(entry.name, name) for name in ignored):
            continue
        if entry.is_dir():
            yield from _files(entry, at / entry.name)
        else:
            yield at / entry.name, entry.read_bytes()


def _ignored(folder: Traversable) -> list[str]:
    """Files that git ignores, such as the secrets that somebody keeps beside the compose file."""
    file = folder / ".gitignore"
    return [".gitignore", *file.read_text().replace("/", "").split()] if file.is_file() else []


def _differs(path: Path, content: bytes) -> bool:
    try:
        return path.read_bytes() != content
    except FileNotFoundError:
        return False
    except OSError:
        return True
