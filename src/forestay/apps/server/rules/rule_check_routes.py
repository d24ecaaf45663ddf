"""The route that a rule editor calls while somebody types: is the text well-formed, is it true for its reference incident, do the steps fit."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Response
from pydantic import Field

from forestay.apps.server.http.answers import Out, errors
from forestay.apps.server.http.problems import HttpProblem
from forestay.apps.server.http.request_context import RuleAuthor, TheDesk, json_answer
from forestay.apps.server.http.router import Router
from forestay.apps.server.http.schemas import Id, Model, NoNul
from forestay.apps.server.rules.rule_routes import ConclusionIn, Told
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.rules.condition import Erred
from forestay.domain.rules.context import NOTHING_KNOWN, read_context, told_by
from forestay.domain.rules.rule_tree import Conclusion
from forestay.services.rules.rule_editor import check_conclusion

router = Router(prefix="/v1/rules", tags=["rules"])


class CheckIn(Model):
    condition: Annotated[NoNul, Field(max_length=4096)] = ""
    incident: Id | None = None
    """The reference incident;"""
    context: Told | None = None
    """or what is known of one that is not recorded."""
    type: ExceptionType | None = None
    """Nothing: the incident's."""
    conclusion: ConclusionIn | None = None


class TextPositionOut(Out):
    line: int
    """From 1; 0: no place can be named."""
    column: int
    detail: str


class CheckedOut(Out):
    answer: Literal["true", "false", "error"] | None
    """None: there is no condition to try, or it does not compile."""
    message: str
    """Of an error."""
    problems: list[TextPositionOut]
    """Of the condition's text."""
    conclusion: list[str]
    """The errors in the steps."""
    values: dict[str, Any]
    """Every field of the reference incident of which something is known."""


@router.post("/check", response_model=CheckedOut, responses=errors(404, body=True))
async def check_draft(request_context: TheDesk, who: RuleAuthor, body: CheckIn) -> Response:
    """Test a rule that is being written. Nothing is stored."""
    returned_context: dict[str, Any] = dict(body.context or {})
    kind = body.type
    if body.incident is not None:
        incident = (await request_context.services.components.incidents.get_incidents([body.incident])).get(
            body.incident
        )
        if incident is None or incident.tenant != who.tenant:
            raise HttpProblem(404, f"there is no incident {body.incident}")
        returned_context, kind = told_by(incident), kind or incident.kind
    context, _ = read_context(returned_context)
    answer, message, problems = None, "", list[dict[str, object]]()
    if body.condition.strip():
        trial = await request_context.services.trying.try_out(body.condition, [context])
        problems = [
            {"line": problem.line, "column": problem.column, "detail": problem.message} for problem in trial.problems
        ]
        if not problems:
            answer_data = trial.answers[0]
            answer = "error" if isinstance(answer_data, Erred) else str(answer_data).lower()
            message = answer_data.message if isinstance(answer_data, Erred) else ""
    wrong: list[str] = []
    if body.conclusion is not None and kind is not None:
        concluded = Conclusion(body.conclusion.playbook, tuple(body.conclusion.steps))
        wrong = list(check_conclusion(concluded, kind))
        if not wrong:
            known = await request_context.services.components.playbooks.concluded(who.tenant, concluded, kind)
            wrong = [known] if isinstance(known, str) else []
    values = {name: value for name, value in context.items() if value != NOTHING_KNOWN[name]}
    return json_answer(
        {"answer": answer, "message": message, "problems": problems, "conclusion": wrong, "values": values}
    )
