"""Shows a text whose versions are all kept, such as a playbook."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from forestay.apps.cli import neutral
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.session import Session


def show_versioned(
    session: Session, read: Callable[[str | None], Mapping[str, Any]], version: str | None = None
) -> int:
    """Print the text with its author, then its earlier versions. ``version`` may be a prefix."""
    reply = read(whole_version(lambda: read(None), version))
    if session.out.as_json:
        session.out.document(dict(reply))
        return ExitCode.OK
    session.out.data(
        session.out.paint(f"# version {reply['version']}, by {neutral.line(reply['by'])}, {reply['at']}", "dim")
    )
    for line in reply["text"].splitlines():
        session.out.data(neutral.line(line))
    for earlier in reply["versions"][1:]:
        session.out.say(neutral.line(f"earlier: {earlier['version']}  {earlier['at']}  {earlier['by']}"))
    return ExitCode.OK


def whole_version(newest: Callable[[], Mapping[str, Any]], version: str | None) -> str | None:
    """The version with this prefix, of those that the newest one lists; the newest is requested only if a prefix was given."""
    from forestay.client.api.naming import is_whole, only

    if version is None or is_whole(version):
        return version
    known = {str(listed["version"]) for listed in newest()["versions"]}
    return only(version, {value for value in known if value.startswith(version.lower())}, "version")
