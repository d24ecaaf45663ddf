"""`forestay inbox questions` and `forestay inbox answer`: the questions of runs to people, and their answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.columns import Column
from forestay.apps.cli.command import lists
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.ids import short
from forestay.apps.cli.session import Session

NOTHING = "No run asks a question."
_TRUTH = {"true": True, "yes": True, "y": True, "false": False, "no": False, "n": False}


@lists
def list_questions(
    session: Session,
    every: Annotated[bool, typer.Option("--all", "-a", help="Also those that were closed in the last weeks.")] = False,
    me: Annotated[bool, typer.Option("--me", help="Only those that you may answer.")] = False,
) -> int:
    """List questions that runs ask people.

    forestay inbox questions --me
    """
    from forestay.client.api import run_calls

    waiting = session.client.send(run_calls.questions())
    closed = session.client.send(run_calls.questions(state="closed")) if every else []
    found = [question for question in (*waiting, *closed) if question["may_answer"] or not me]
    columns = [
        Column("QUESTION"), Column("STATE"), Column("TITLE", flexible=True), Column("RUN"), Column("TASK", flexible=True), Column("ASKED"),
        Column("UNTIL"), Column("WHO MAY ANSWER", flexible=True), Column("FLOW", wide=True), Column("OWNER", wide=True), Column("ANSWERED BY", wide=True),
    ]  # fmt: skip
    session.print_list(
        "questions", found, columns, key=lambda question: str(question["id"]),
        row=lambda question: [
            question["id"], question["state"], question["title"], short(question["run"]), question["task"], session.when(question["asked"]),
            session.when(question["until"]), ", ".join(question["who"]), question["flow"], question["owner"], question["answered_by"] or "-",
        ],
        empty=NOTHING,
    )  # fmt: skip
    if any(question["state"] == "waiting" for question in found) and not session.out.as_json:
        session.out.say(
            "To read one: forestay inbox answer QUESTION. To answer: forestay inbox answer QUESTION FIELD=VALUE …"
        )
    return ExitCode.OK


def answer(
    session: Session,
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="The question's id, or the beginning of it.")],
    values: Annotated[
        list[str] | None,
        typer.Argument(metavar="FIELD=VALUE", help="The fields of the answer; without them it is shown."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Answer with the defaults of all fields.")] = False,
) -> int:
    """Answer a question of a run, or show it.

    The answer becomes the outputs of the task that asks, and the run continues.

    forestay inbox answer 3f9a1c7e20b4 good=yes threshold=0.7
    """
    from forestay.client.api import run_calls
    from forestay.client.api.naming import QUESTION

    name = session.ids(QUESTION, [question])[0]
    known = session.client.send(run_calls.question(name))
    if not values and not yes:
        _show(session, known)
        return ExitCode.OK
    reply = session.client.send(run_calls.answer_question(name, _answer(known["form"], values or ())))
    if session.out.as_json:
        session.out.document(reply)
    else:
        session.out.data(f"{reply['id']} {reply['state']}")
        session.out.say(f"To see what follows: forestay watch {short(reply['run'])}")
    return ExitCode.OK


def _answer(form: dict[str, Any], values: Sequence[str]) -> dict[str, Any]:
    fields = form.get("properties", {})
    answer: dict[str, Any] = {}
    for text in values:
        name, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"{text!r}: expected FIELD=VALUE")
        answer[name] = _value(str(fields.get(name, {}).get("type", "string")), name, value)
    return answer


def _value(kind: str, name: str, text: str) -> object:
    """A value in the type of its field; other errors are reported by the server."""
    if kind == "string":
        return text
    if kind == "boolean":
        if text.lower() not in _TRUTH:
            raise typer.BadParameter(f"{name}: expected yes or no")
        return _TRUTH[text.lower()]
    try:
        return int(text) if kind == "integer" else float(text)
    except ValueError:
        raise typer.BadParameter(f"{name}: expected a number") from None


def _show(session: Session, known: dict[str, Any]) -> None:
    if session.out.as_json:
        session.out.document(known)
        return
    out = session.out
    out.data(neutral.line(known["title"]))
    if known["text"]:
        out.data(neutral.lines(known["text"]))
    out.data(f"Run {short(known['run'])} ({neutral.line(known['flow'])}), task {neutral.line(known['task'])}")
    out.data(f"May answer: {neutral.line(', '.join(known['who']))}")
    if known["state"] == "waiting" and known["until"]:
        default = (
            f"then {neutral.line(json.dumps(known['default']))}" if known["default"] is not None else "then it fails"
        )
        out.data(f"Until: {session.when(known['until'])}, {default}")
    if known["state"] != "waiting":
        by = f" by {neutral.line(known['answered_by'])}" if known["answered_by"] else ""
        out.data(f"{known['state'].capitalize()}{by}: {neutral.line(json.dumps(known['answer']))}")
        return
    required = known["form"].get("required", [])
    for name, field in known["form"].get("properties", {}).items():
        choices = f": {', '.join(str(choice) for choice in field['enum'])}" if "enum" in field else ""
        marks = ", required" if name in required else ""
        marks += f", default {json.dumps(field['default'])}" if "default" in field else ""
        title = f"  {neutral.line(field['title'])}" if field.get("title") else ""
        out.data(neutral.line(f"  {name} ({field['type']}{choices}{marks}){title}"))
    out.say(f"To answer: forestay inbox answer {known['id']} FIELD=VALUE …; with the defaults: --yes")
