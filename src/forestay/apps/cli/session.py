"""What every command has available: its options, the two streams, and a client that is created when first needed."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from forestay.apps.cli import neutral
from forestay.apps.cli.amounts import ago, moment
from forestay.apps.cli.columns import Column, cells
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.ids import ShortIds
from forestay.apps.cli.output import CommandOutput, as_json

if TYPE_CHECKING:  # httpx takes longer to load than `--help` may take
    from forestay.client import ClientError, ForestayClient
    from forestay.client.api.naming import Kind
    from forestay.client.transport.settings import ClientSettings

T = TypeVar("T")
_PLACE = re.compile(r"([a-z]+):(\d{1,6}):(\d{1,6})")
_WHERE = re.compile(r"^\d{1,6}:\d{1,6}: ")
REOPEN_AFTER = 1.0
"""Seconds before a broken stream is opened again."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options that every command takes."""

    server: str | None = None
    token_file: Path | None = None
    as_json: bool = False
    patience: float | None = None
    quiet: bool = False
    verbose: bool = False
    form: str | None = None
    """The form of a list: wide, json or name."""


class Session:
    """One invocation of a command by a person or a script."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.out = CommandOutput(
            as_json=options.as_json, quiet=options.quiet, verbose=options.verbose, form=options.form
        )
        self._client: ForestayClient | None = None
        self.sources: dict[str, str] = {}
        """Texts that were sent, by the names with which positions in them begin."""

    @cached_property
    def settings(self) -> ClientSettings:
        from forestay.client import find_settings

        return find_settings(server=self.options.server, token_file=self.options.token_file)

    @property
    def client(self) -> ForestayClient:
        return self.client_with(self.options.patience)

    def client_with(self, patience: float | None) -> ForestayClient:
        """The client, created with this patience if it does not exist yet."""
        if self._client is None:
            from forestay.client import ForestayClient, Patience

            self._warn_of_clear_text()
            self._client = ForestayClient(
                self.settings.server.value,
                self.settings.token.value,
                patience=Patience() if patience is None else Patience(seconds=patience),
                notice=lambda text: self.out.say(neutral.line(text)),
            )
            self.out.detail(f"server {self.settings.server.value} ({self.settings.server.source})")
        return self._client

    def _warn_of_clear_text(self) -> None:
        from forestay.client.transport.connection import Servers, on_this_machine

        for address in Servers(self.settings.server.value).addresses:
            if address.startswith("http://") and not on_this_machine(address):
                self.out.say(f"warning: {address} is not encrypted; others on the network can read your token")

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def ids(self, kind: Kind, names: Sequence[str]) -> list[str]:
        """The ids for the given names, each once."""
        from forestay.client.api.naming import resolve

        return list(dict.fromkeys(resolve(self.client, kind, names)))

    def jobs(self, names: Sequence[str]) -> list[str]:
        """The ids of the named jobs, each once; `-` reads ids from stdin."""
        from forestay.client.api.naming import JOB

        given_names: list[str] = []
        for name in names:
            given_names += sys.stdin.read().split() if name == "-" else [name]
        return self.ids(JOB, given_names)

    def job(self, name: str) -> str:
        """The id of the named job."""
        import typer

        from forestay.client.api.naming import is_batch_id
        from forestay.client.transport.errors import Ambiguous, NotFoundError

        try:
            ids = self.jobs([name])
        except (Ambiguous, NotFoundError) as error:
            if not is_batch_id(name):
                raise
            message = f"{error}. What went wrong with a batch job: forestay explain {name}"
            raise NotFoundError(message, status=404) from None
        if len(ids) != 1:
            raise typer.BadParameter(f"name one job, not {len(ids)}")
        return ids[0]

    def flow_run(self, name: str) -> str:
        """The id of the named run."""
        from forestay.client.api.naming import RUN

        return self.ids(RUN, [name])[0]

    def incident(self, name: str) -> str:
        """The id of the named incident, or of the newest one of the named job or run."""
        from forestay.client.api.naming import resolve_incident

        return resolve_incident(self.client, name)

    def rule(self, name: str, rule_set: str | None) -> tuple[str, str]:
        """The set and the id of the named rule."""
        from forestay.client.api.naming import resolve_rule

        return resolve_rule(self.client, name, rule_set)

    def short_ids(self, ids: Iterable[str]) -> ShortIds:
        """The ids of a list in their displayed form."""
        return ShortIds(ids, whole=self.out.wide)

    def when(self, text: str | None) -> str:
        """A time in a list: how long ago, or with `-o wide` the time itself."""
        return moment(text) if self.out.wide else ago(text, self.client.now())

    def print_list(
        self,
        name: str,
        values: Sequence[T],
        columns: Sequence[Column],
        row: Callable[[T], Sequence[str]],
        *,
        key: Callable[[T], str],
        empty: str = "",
    ) -> None:
        """Print a list in the requested form: a table, ids or names alone, or JSON."""
        if self.out.as_json:
            self.out.document({name: values})
        elif self.out.form == "name":
            for value in values:
                self.out.data(neutral.line(key(value)))
        elif values:
            self.out.table(columns, [row(value) for value in values])
        elif empty:
            self.out.say(empty)

    def sure(self, question: str, *, yes: bool) -> bool:
        """Ask a person for confirmation; a script needs none."""
        if yes or not self.out.at_terminal:
            return True
        sys.stderr.write(f"{question} [y/N] ")
        sys.stderr.flush()
        return sys.stdin.readline().strip().lower() in {"y", "yes"}

    def report(self, error: ClientError) -> ExitCode:
        """Print why something was not done and what to do next; returns the exit code."""
        from forestay.client.transport import errors

        code = next((code for kind, code in _codes() if isinstance(error, kind)), ExitCode.FAILED)
        if self.out.as_json:
            problem: dict[str, object] = {"message": str(error), "exit_code": int(code)}
            if isinstance(error, errors.ApiError):
                problem |= {"status": error.status, "title": error.title, "errors": list(error.problems)}
            sys.stderr.write(as_json({"error": problem}) + "\n")
            return code
        problems = list(error.problems) if isinstance(error, errors.ApiError) else []
        message = str(error)
        if problems and _says(problems[0], message):
            # The first of them is the message, with its position.
            self.out.complain(neutral.line(_field(problems[0])))
            self._point_at(problems.pop(0))
        else:
            self.out.complain(neutral.lines(message))
        for problem_of_field in problems:
            self.out.say("  " + neutral.line(_field(problem_of_field)))
            self._point_at(problem_of_field)
        for hint in self._advice(error):
            self.out.say(hint)
        return code

    def _point_at(self, problem: object) -> None:
        """Print the line of a text with a problem, and a mark below its position."""
        at = str(problem.get("at", "")) if isinstance(problem, dict) else ""
        match = _PLACE.fullmatch(at)
        lines = self.sources.get(match[1], "").splitlines() if match is not None else []
        if match is None or not 0 < int(match[2]) <= len(lines):
            return
        line, column = lines[int(match[2]) - 1], int(match[3])
        before = neutral.line(line[: column - 1])
        self.out.say(f"    {neutral.line(line)}\n    {' ' * cells(before)}^")

    def _advice(self, error: ClientError) -> list[str]:
        from forestay.client.transport import errors

        if isinstance(error, errors.NotAllowed):
            if error.status == 401:
                return [f"The token comes from {self.settings.token.source}. Ask your operator for a new one."]
            return ["Your token does not allow this. `forestay config` shows which one is used."]
        if isinstance(error, errors.Unavailable):
            hints = [f"Server: {self.settings.server.value} ({self.settings.server.source})."]
            if error.outcome_unknown:
                hints.append("The request may have succeeded; check the job before retrying.")
            return hints
        if isinstance(error, errors.ConflictError) and "job" in str(error):
            return ["`forestay describe` shows the job's present state."]
        return []


def _codes() -> list[tuple[type[Exception], ExitCode]]:
    from forestay.client.transport import errors

    return [
        (errors.BadSettings, ExitCode.USAGE),
        (errors.Ambiguous, ExitCode.USAGE),
        (errors.BadRequest, ExitCode.USAGE),
        (errors.NotFoundError, ExitCode.NOT_FOUND),
        (errors.NotAllowed, ExitCode.AUTH),
        (errors.ConflictError, ExitCode.CONFLICT),
        (errors.Unavailable, ExitCode.UNAVAILABLE),
        (errors.TimedOut, ExitCode.TIMEOUT),
    ]


def _says(problem: object, message: str) -> bool:
    """Whether a message adds nothing to a problem."""
    detail = str(problem.get("detail", "")) if isinstance(problem, dict) else str(problem)
    return bool(detail) and (message == detail or _WHERE.sub("", message) == detail)


def _field(problem: object) -> str:
    if not isinstance(problem, dict):
        return str(problem)
    where = next((problem[name] for name in ("at", "field", "loc", "pointer") if name in problem), "")
    what = next((problem[name] for name in ("detail", "message", "msg") if name in problem), problem)
    if isinstance(where, list):
        where = ".".join(str(part) for part in where)
    return f"{where}: {what}" if where else str(what)
