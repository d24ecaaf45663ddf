"""Questions of runs over HTTP: who sees them, who may answer, what is refused, and that it is in the audit log."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.apps.server.asks import problem
from tests.unit.apps.server.running import RunningServer

from forestay.domain.flows.commands import AnswerVerb, AskPerson, CloseQuestion, QuestionOutcome
from forestay.domain.flows.events import Verb
from forestay.ports.errors import NotFound
from forestay.services.flows.questions import RunOf, question_id

FORM = {"properties": {"good": {"type": "boolean"}, "note": {"type": "string", "default": "-"}}, "required": ["good"]}


class Engine:
    """A run that takes the first answer."""

    def __init__(self) -> None:
        self.taken: dict[str, Verb] = {}
        self.gone = False

    async def send_verb(self, _run: str, verb: Verb) -> AnswerVerb:
        if self.gone:
            raise NotFound("it has ended")
        if self.taken and verb.id not in self.taken:
            (first,) = self.taken.values()
            return AnswerVerb(verb.id, accepted=False, detail=f"{first.by} has already answered")
        self.taken[verb.id] = verb
        return AnswerVerb(verb.id, accepted=True)


async def ask(server: RunningServer, tenant: str, run: str = "r-1", **more: Any) -> str:
    asks = RunOf(tenant, "ada", run, "calibration")
    command = AskPerson("check@1", "check", 1, "Good?", form=FORM, who=("owner", "user:ben"), **more)
    await server.services.components.questions.ask(asks, command)
    await server.refresh()
    return question_id(run, "check@1")


async def test_a_question_is_listed_with_who_may_answer_and_answered_once(
    server: RunningServer, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine()
    monkeypatch.setattr(server.services.components, "engine", engine)
    name = await ask(server, tenant, until=1_900_000_000_000, default={"good": False})
    ben = server.person("viewer", tenant=tenant, subject="ben")
    ada = server.person("submitter", tenant=tenant, subject="ada")
    cleo = server.person("operator", tenant=tenant, subject="cleo")
    (shown,) = (await ben.get("/v1/questions")).json()["questions"]
    assert (shown["id"], shown["state"], shown["title"], shown["may_answer"]) == (name, "waiting", "Good?", True)
    assert (shown["run"], shown["task"], shown["flow"], shown["owner"]) == ("r-1", "check", "calibration", "ada")
    assert shown["until"] == "2030-03-17T17:46:40.000Z"
    assert (await cleo.get(f"/v1/questions/{name}")).json()["may_answer"] is False
    refused = problem(await cleo.post(f"/v1/questions/{name}", json={"answer": {"good": True}}), 403)
    assert refused["detail"] == "cleo may not answer this; owner, user:ben may"
    wrong = problem(await ben.post(f"/v1/questions/{name}", json={"answer": {"good": 3, "odd": 1}}), 422)
    assert "good: expected true or false" in wrong["detail"]
    assert "odd: the form has no such field" in wrong["detail"]
    done = await ben.post(f"/v1/questions/{name}", json={"answer": {"good": True}})
    assert done.status_code == 200, done.text
    assert (done.json()["state"], done.json()["answered_by"]) == ("answered", "ben")
    assert done.json()["answer"] == {"good": True, "note": "-"}
    again = await ben.post(f"/v1/questions/{name}", json={"answer": {"good": True}})
    assert again.status_code == 200
    assert len(engine.taken) == 1
    late = problem(await ada.post(f"/v1/questions/{name}", json={"answer": {"good": False}}), 409)
    assert late["detail"] == "ben has already answered"
    entries, _ = await server.services.components.audit.read(tenant)
    noted = [(entry.by, entry.on) for entry in entries if entry.what == "question.answer"]
    assert noted == [("ben", "r-1"), ("ben", "r-1"), ("ada", "r-1")]


async def test_a_closed_question_says_what_became_of_it(
    server: RunningServer, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.services.components, "engine", Engine())
    name = await ask(server, tenant, run="r-4")
    closed = CloseQuestion("check@1", QuestionOutcome.ANSWERED, "ben", {"good": True, "note": "-"})
    await server.services.components.questions.close(RunOf(tenant, "ada", "r-4", ""), closed)
    await server.refresh()
    ada = server.person("viewer", tenant=tenant, subject="ada")
    ben = server.person("viewer", tenant=tenant, subject="ben")
    assert (await ada.get("/v1/questions")).json()["questions"] == []
    (shown,) = (await ada.get("/v1/questions?state=closed")).json()["questions"]
    assert (shown["state"], shown["answered_by"], shown["answer"]) == ("answered", "ben", {"good": True, "note": "-"})
    late = problem(await ada.post(f"/v1/questions/{name}", json={"answer": {"good": False}}), 409)
    assert late["detail"] == "the question is closed: answered by ben"
    repeat = await ben.post(f"/v1/questions/{name}", json={"answer": {"good": True}})
    assert repeat.status_code == 200


async def test_a_question_of_another_tenant_does_not_exist(server: RunningServer, tenant: str) -> None:
    name = await ask(server, tenant, run="r-2")
    stranger = server.person("administrator", tenant="elsewhere", subject="ada")
    assert (await stranger.get("/v1/questions")).json()["questions"] == []
    problem(await stranger.get(f"/v1/questions/{name}"), 404)
    problem(await stranger.post(f"/v1/questions/{name}", json={"answer": {"good": True}}), 404)


async def test_an_answer_to_a_run_that_has_ended_is_refused(
    server: RunningServer, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine()
    monkeypatch.setattr(server.services.components, "engine", engine)
    engine.gone = True
    name = await ask(server, tenant, run="r-3")
    ben = server.person("viewer", tenant=tenant, subject="ben")
    ended = problem(await ben.post(f"/v1/questions/{name}", json={"answer": {"good": True}}), 409)
    assert ended["detail"] == "the run has ended"


async def test_no_verb_goes_round_the_check_of_who_may_answer(server: RunningServer, tenant: str) -> None:
    olga = server.person("operator", tenant=tenant, subject="olga")
    problem(await olga.post("/v1/runs/r-1/verbs", json={"verb": "answer", "task": "check"}), 422)
