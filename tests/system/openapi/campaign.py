"""Cases that Schemathesis makes of our own description, sent to a real server; what the answers break is kept.

Half of them are what the description allows, half are not. Where a path names something, most cases name what is really there, so that a route is
not only asked for what it does not have.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import BaseSchema, Case, GenerationMode
from schemathesis.core.failures import FailureGroup
from schemathesis.core.transport import Response
from schemathesis.generation.drivers import CoverageGenerator
from schemathesis.generation.feedback import FeedbackSources
from schemathesis.generation.overrides import Override
from tests.system.openapi.ground import Ground

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)
REAL = 0.7
"""The share of cases whose path names what is there."""
TAME = 0.5
"""The share of the allowed cases whose texts are made plain, so that they get past the checks of single fields."""
WILD = frozenset({"callback", "not_before"})
"""Fields that a plain text is never good for."""
NO_REQUEST = (400, "Invalid HTTP request received.")
"""What the HTTP parser answers to what it cannot read: no route is reached, and no description applies."""
LONGEST_WAIT = 0.05
"""Seconds that a request may ask to wait for news; the waiting itself is tested elsewhere."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A check that an answer did not pass."""

    operation: str
    check: str
    status: int
    words: str
    curl: str
    answer: str


@dataclass(slots=True)
class Outcome:
    """What a campaign has come to."""

    cases: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    asked: Counter[str] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)
    """Runs that an operation answered well."""
    broken: dict[tuple[str, str, int], Broken] = field(default_factory=dict)
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    """What the description allows and the route does not, by the place of it: no promise is broken, but more could be said."""
    slowest: dict[str, float] = field(default_factory=dict)
    """Seconds of the longest wait for an answer, by operation."""
    seconds: float = 0.0

    @property
    def server_errors(self) -> int:
        """Answers 5xx; 503 too, which says that the store did not answer."""
        return sum(many for status, many in self.statuses.items() if status >= 500)


def campaign(
    ground: Ground, api: dict[str, Any], *, cases: int, first: int = 1, most_seconds: float = 1e9, only: str = ""
) -> Outcome:
    """Send at least so many cases, the same number to every operation; fewer when the time is over."""
    schema = schema_of(api)
    operations = [operation for operation in operations_of(schema) if only in operation.label]
    random.Random(first).shuffle(operations)  # a short run then does not always ask the same few
    outcome = Outcome()
    started = time.monotonic()
    give_up = started + most_seconds
    with requests.Session() as session:
        session.trust_env = False
        turn = 0
        # What has no parameters has few different cases, so that others get more of them in a further turn.
        while outcome.cases < cases and time.monotonic() < give_up:
            each = -(-(cases - outcome.cases) // len(operations))
            for number, operation in enumerate(operations):
                seeded = first + number + turn * 1000
                sender = _Sender(ground, session, outcome, random.Random(seeded), give_up)
                edges = sender.send_edges(operation, each // 4) if turn == 0 else 0
                rest = each - edges
                sender.send(operation, GenerationMode.POSITIVE, rest - rest // 2, seeded)
                sender.send(operation, GenerationMode.NEGATIVE, rest // 2, seeded)
            turn += 1
    outcome.seconds = time.monotonic() - started
    return outcome


def schema_of(api: dict[str, Any]) -> BaseSchema:
    """The description as it is asked by, without its tokens: half of what it does not allow would be a request without one, and never reach a route."""
    components = {key: value for key, value in api["components"].items() if key != "securitySchemes"}
    schema = schemathesis.openapi.from_dict(api | {"security": [], "components": components})
    schema.config.max_stream_events = 1
    return schema


def operations_of(schema: BaseSchema) -> list[Any]:
    """Every operation; one that cannot be understood fails the run."""
    return [operation.ok() for operation in schema.get_all_operations()]  # type: ignore[union-attr]  # otherwise it raises


@dataclass(slots=True)
class _Sender:
    ground: Ground
    session: requests.Session
    outcome: Outcome
    dice: random.Random
    give_up: float
    pilot: tuple[str, str] = ("", "")

    def send(self, operation: Any, mode: GenerationMode, many: int, first: int) -> None:
        if many <= 0 or time.monotonic() > self.give_up:
            return
        strategy = operation.as_strategy(generation_mode=mode)
        if "{pilot}" in operation.path:
            self.pilot = self.ground.pilot()
        left = many

        @seed(first)
        @settings(
            max_examples=many,
            deadline=None,
            database=None,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
        )
        @given(case=strategy)
        def ask(case: Case[Any]) -> None:
            nonlocal left
            if left > 0 and time.monotonic() < self.give_up:
                left -= 1
                self.ask(case, allowed=mode is GenerationMode.POSITIVE)

        with suppress(Unsatisfiable):  # there is no wrong way to ask for what has no parameters
            ask()

    def send_edges(self, operation: Any, most: int) -> int:
        """Values at the edges of what is allowed and just beyond, methods and kinds of bodies that are none; how many were sent."""
        made = list(islice(_edges(operation), 4 * most))  # of a large body there are thousands
        if "{pilot}" in operation.path:
            self.pilot = self.ground.pilot()
        sent = self.dice.sample(made, min(most, len(made)))
        for case in sent:
            if time.monotonic() < self.give_up:
                self.ask(case, allowed=case.meta is not None and case.meta.generation.mode is GenerationMode.POSITIVE)
        return len(sent)

    def ask(self, case: Case[Any], *, allowed: bool) -> None:
        token = self._prepare(case, allowed=allowed)
        self.outcome.cases += 1
        self.outcome.asked[case.operation.label] += 1
        headers = {"Authorization": f"Bearer {token}"}
        began = time.monotonic()
        try:
            answer = case.call(base_url=self.ground.url, session=self.session, headers=headers, timeout=60)
        except (requests.RequestException, OSError) as error:
            self._broke(case, "answers", 0, repr(error), "")
            return
        taken = time.monotonic() - began
        self.outcome.slowest[case.operation.label] = max(taken, self.outcome.slowest.get(case.operation.label, 0.0))
        self.outcome.statuses[answer.status_code] += 1
        if answer.status_code < 300:
            self.outcome.reached[case.operation.label] += 1
        if allowed and answer.status_code in (400, 422):
            body = answer.json()
            places = [f"{other_error['at']}: {other_error['detail']}" for other_error in body.get("errors", [])] or [
                str(body.get("detail"))
            ]
            self.outcome.refused.update((case.operation.label, place[:200]) for place in places)
        for failure in _failures(case, answer):
            self._broke(case, type(failure).__name__, answer.status_code, str(failure), answer.text)

    def _prepare(self, case: Case[Any], *, allowed: bool) -> str:
        """Name what is there, wait briefly; the token of who may ask this."""
        if allowed and isinstance(case.body, dict) and self.dice.random() < TAME:
            good = self.ground.bodies.get(case.operation.label, {})
            case.body = {name: _tame(value) for name, value in case.body.items() if name not in WILD} | good
        names = self.ground.names | {"pilot": [self.pilot[0]]}
        for part in (case.path_parameters, case.query, case.body):
            self._name(part, names)
        wait_briefly(case)
        return self.pilot[1] if "{pilot}" in case.path else self.ground.token("administrator")

    def _name(self, part: Any, names: Mapping[str, Sequence[object]]) -> None:
        """Put what is there in the place of texts of that name, at any depth."""
        if isinstance(part, list):
            for other_part in part:
                self._name(other_part, names)
        elif isinstance(part, dict):
            for name, value in part.items():
                if isinstance(value, str) and names.get(name) and self.dice.random() < REAL:
                    part[name] = self.dice.choice(names[name])
                else:
                    self._name(value, names)

    def _broke(self, case: Case[Any], check: str, status: int, words: str, answer: str) -> None:
        key = (case.operation.label, check, status)
        if key not in self.outcome.broken:
            curl = case.as_curl_command(base_url=self.ground.url)
            self.outcome.broken[key] = Broken(*key[:2], status, words[:1500], curl[:3000], answer[:1000])


def _edges(operation: Any) -> CoverageGenerator:
    config = operation.schema.config.generation_for(operation=operation, phase="coverage")
    return CoverageGenerator(
        operation=operation,
        generation_modes=[GenerationMode.POSITIVE, GenerationMode.NEGATIVE],
        generation_config=config,
        auth_storage=None,
        override=Override(),
        feedback=FeedbackSources(),
    )


def wait_briefly(case: Case[Any]) -> None:
    """Let a request not wait longer for news than a moment."""
    for part in (case.query, case.body):
        asked: Any = part.get("wait") if isinstance(part, dict) else None
        if isinstance(asked, (int, float)) and asked > LONGEST_WAIT:
            part["wait"] = LONGEST_WAIT  # type: ignore[index, call-overload]


def _tame(value: Any) -> Any:
    """With plain texts: what a route takes is stricter than what can be said in its description."""
    if isinstance(value, str):
        return "".join(name for name in value if name.isascii() and (name.isalnum() or name in "-_.")) or "plain"
    if isinstance(value, list):
        return [_tame(entry) for entry in value]
    if isinstance(value, dict):
        return {_tame(name): _tame(entry) for name, entry in value.items() if name not in WILD}
    return value


def _failures(case: Case[Any], answer: Response) -> Iterator[Exception]:
    if case.method != case.operation.method.upper():
        if answer.status_code not in (401, 404, 405):
            yield AssertionError(f"{case.method} is not described, and was answered {answer.status_code}")
        return
    if (answer.status_code, answer.text) == NO_REQUEST:
        return
    checks = [getattr(schemathesis.checks, name) for name in CHECKS]
    if answer.headers.get("content-type", [""])[0].startswith("text/event-stream"):
        checks.pop()  # the description has a stream as one text; here it would be taken for a list of events
    try:
        case.validate_response(answer, checks=checks)
    except FailureGroup as group:
        yield from group.exceptions
