"""Where output goes: data to stdout, messages to stderr, colour and progress only to a terminal."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from forestay.apps.cli import neutral
from forestay.apps.cli.columns import Column, folded, table

if TYPE_CHECKING:
    from rich.progress import Progress

PAGE = 100
"""The width of a line of text for people."""
_STYLES = {"red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36", "dim": "2", "bold": "1"}


def wants_colour(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether to use colour: NO_COLOR forbids it, CLICOLOR_FORCE forces it, and otherwise it depends on the terminal."""
    if environment.get("NO_COLOR"):
        return False
    if environment.get("CLICOLOR_FORCE", "0") not in {"", "0"}:
        return True
    if environment.get("CLICOLOR") == "0" or environment.get("TERM") == "dumb":
        return False
    return stream.isatty()


class CommandOutput:
    """The two streams of one command."""

    def __init__(
        self, *, as_json: bool = False, quiet: bool = False, verbose: bool = False, form: str | None = None
    ) -> None:
        self.as_json = as_json or form == "json"
        self.form = form
        self.quiet = quiet
        self.verbose = verbose
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                # A character that the terminal's encoding lacks must not end the command.
                stream.reconfigure(errors="backslashreplace")
        self._colour_out = wants_colour(sys.stdout, os.environ)
        self.colour_err = wants_colour(sys.stderr, os.environ)

    @property
    def to_terminal(self) -> bool:
        """Whether data goes to a terminal."""
        return sys.stdout.isatty()

    @property
    def at_terminal(self) -> bool:
        """Whether a person can be asked and shown progress."""
        return sys.stdin.isatty() and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    @property
    def shows_progress(self) -> bool:
        return sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not self.quiet

    def paint(self, text: str, *styles: str) -> str:
        """Colour for stdout."""
        return painted(text, styles) if self._colour_out else text

    def data(self, text: str = "") -> None:
        """One line of the requested data."""
        sys.stdout.write(text + "\n")

    def folded(self, text: str, indent: int) -> None:
        """One line of the requested data; on a terminal it is wrapped and indented if it is too long."""
        for line in [text] if self.width is None else folded(text, self.width, indent):
            self.data(line)

    @property
    def wide(self) -> bool:
        """Whether a list has every column, whole ids and whole times."""
        return self.form == "wide"

    @property
    def width(self) -> int | None:
        """The maximum width of a table; None: unlimited, as for a program that reads it."""
        if self.wide or not (self.to_terminal or os.environ.get("COLUMNS", "").isdigit()):
            return None
        return shutil.get_terminal_size().columns

    @property
    def page_width(self) -> int:
        """The maximum width of a line of text between tables, limited to a readable width."""
        return min(PAGE, self.width or PAGE)

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
        """The requested data as rows with headings."""
        shown = [place for place, column in enumerate(columns) if self.wide or not column.wide]
        kept = [[row[place] for place in shown] for row in rows]
        for line in table([columns[place] for place in shown], kept, paint=self.paint, width=self.width):
            self.data(line)

    def raw(self, text: str) -> None:
        """A piece of the requested data, printed at once."""
        sys.stdout.write(text)
        sys.stdout.flush()

    def document(self, value: object) -> None:
        """A JSON document: on one line, or indented for a reader at a terminal."""
        self.data(as_json(value, indented=self.to_terminal))
        sys.stdout.flush()

    def event(self, value: object) -> None:
        """One of many JSON documents, one per line."""
        self.data(as_json(value))
        sys.stdout.flush()

    def documents(self, name: str, values: Iterable[object]) -> None:
        """A JSON document that contains one long list, written as it comes."""
        many = 0
        sys.stdout.write("{" + as_json(name) + ": [")
        for value in values:
            sys.stdout.write((",\n" if many else "\n") + as_json(value))
            many += 1
        sys.stdout.write("\n]}\n" if many else "]}\n")

    def say(self, text: str) -> None:
        """A progress message: what happens, and what to do next."""
        if not self.quiet:
            sys.stderr.write(text + "\n")
            sys.stderr.flush()

    def detail(self, text: str) -> None:
        """A progress message that only -v shows."""
        if self.verbose:
            self.say(painted(text, ("dim",)) if self.colour_err else text)

    def complain(self, text: str) -> None:
        """Why something was not done; printed even with `-q`."""
        sys.stderr.write((painted("error:", ("red", "bold")) if self.colour_err else "error:") + f" {text}\n")
        sys.stderr.flush()

    @contextmanager
    def progress(self, what: str, total: int | None = None) -> Iterator[ProgressStep]:
        """A bar on a terminal, and nothing elsewhere."""
        if not self.shows_progress:
            yield ProgressStep(None)
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        console = Console(stderr=True, no_color=not self.colour_err, highlight=False)
        columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()]
        with Progress(*columns, console=console, transient=True) as bar:
            bar.add_task(what, total=total)
            yield ProgressStep(bar)


class ProgressStep:
    """Moves a bar on, if there is one."""

    def __init__(self, bar: Progress | None) -> None:
        self._bar = bar

    def to(self, done: int) -> None:
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done)

    def of(self, done: int, total: int) -> None:
        """Set the total, if it becomes known only later."""
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done, total=total)


def as_json(value: Any, *, indented: bool = False) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=2 if indented else None)
    return neutral.json(text)


def painted(text: str, styles: tuple[str, ...]) -> str:
    """A text in the named styles."""
    codes = ";".join(_STYLES[style] for style in styles if style)
    return f"\x1b[{codes}m{text}\x1b[0m" if codes and text else text
