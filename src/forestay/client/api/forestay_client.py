"""The client for ordinary programs: every call blocks until its response. `AsyncForestayClient` is the asyncio version."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

import httpx
import orjson

from forestay.client.api import calls, incident_calls, playbook_calls, rule_calls, run_calls
from forestay.client.api.answers import HistoryList, IncidentList, JobList, RunList, StoryPage
from forestay.client.api.calls import Call, Filters, Json
from forestay.client.api.retrying_call import Patience, ReadBack, RetryingCall, RetryLater, problem
from forestay.client.transport.connection import HangUp, Servers, new_client_options
from forestay.client.transport.errors import Unavailable
from forestay.client.transport.event_stream import EventReader, StreamEvent

if TYPE_CHECKING:
    from forestay.client.api.schemas import (
        AcceptedJson,
        IncidentWhole,
        Job,
        NewJob,
        RunDetails,
        SpecificationJson,
        StartedRunJson,
        StoredFlow,
        StoredSpecificationJson,
        Story,
        WhyRun,
    )

T = TypeVar("T")
HowFar = Callable[[int, int], None]
"""Told how much is done, and of how much."""


class ForestayClient:
    """A connection to a Forestay installation: one server, or several of the same installation, tried in turn when one is down.

    Calls that get no answer are repeated with growing waits until `patience` is used up; then `Unavailable` is raised.
    `notice` is called before each repeat.
    """

    def __init__(
        self,
        server: str | Sequence[str],
        token: str,
        *,
        patience: Patience | None = None,
        notice: Callable[[str], None] = lambda _: None,
        sleep: Callable[[float], None] = time.sleep,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._servers = Servers(server)
        self._patience = patience or Patience()
        self._notice = notice
        self._sleep = sleep
        self._ahead = 0.0
        self._http = httpx.Client(transport=transport, **new_client_options(self._servers, token))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    @property
    def server(self) -> str:
        """The address that calls go to now."""
        return self._servers.current

    def now(self) -> datetime:
        """The time as the server that answered last has it: ages of jobs are reckoned by it, not by our own clock."""
        return datetime.fromtimestamp(time.time() + self._ahead, UTC)

    def send(self, call: Call[T]) -> T:
        """Send a call, and again as long as there is patience."""
        trial = RetryingCall(call, self._patience)
        while True:
            try:
                answer = self._http.send(call.request(self._http, self._servers.current))
            except httpx.TransportError as error:
                verdict: RetryLater = trial.failed(error)
            else:
                self._look_at_clock(answer)
                judged = trial.answered(answer)
                if isinstance(judged, ReadBack):
                    return trial.settled(judged, self.job(judged.job))
                if not isinstance(judged, RetryLater):
                    return judged.value
                verdict = judged
            self._servers.next()
            self._notice(f"{verdict.why}; retrying in {verdict.seconds:.1f} s")
            self._sleep(verdict.seconds)

    def _look_at_clock(self, answer: httpx.Response) -> None:
        try:
            self._ahead = parsedate_to_datetime(answer.headers["date"]).timestamp() - time.time()
        except (KeyError, ValueError):
            return
        if abs(self._ahead) < 2:  # a date has whole seconds and the answer was on its way
            self._ahead = 0.0

    def submit(
        self, jobs: Sequence[NewJob], specification: SpecificationJson | None = None, *, key: str | None = None
    ) -> list[AcceptedJson]:
        """Submit at most 10,000 jobs; `submit_many` takes any number."""
        return self.send(calls.submit(jobs, specification, key=key))

    def job(self, name: str) -> Job:
        return self.send(calls.job(name))

    def find_jobs(
        self,
        filters: Filters | None = None,
        *,
        sort: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> JobList:
        """One page; `all_jobs` continues from page to page."""
        return self.send(calls.find_jobs(filters, sort=sort, limit=limit, cursor=cursor))

    def all_jobs(
        self, filters: Filters | None = None, *, sort: str | None = None, most: int | None = None
    ) -> Iterator[Job]:
        """Every job found, or the first `most`, page by page."""
        cursor: str | None = None
        while most is None or most > 0:
            limit = calls.LARGEST_PAGE if most is None else min(most, calls.LARGEST_PAGE)
            page = self.find_jobs(filters, sort=sort, limit=limit, cursor=cursor)
            yield from page.jobs
            if page.cursor is None:
                return
            cursor = page.cursor
            most = None if most is None else most - len(page.jobs)

    def count_jobs(self, by: str = "state", filters: Filters | None = None) -> dict[str, int]:
        return self.send(calls.count_jobs(by, filters))

    def specification(self, job: str) -> StoredSpecificationJson:
        return self.send(calls.specification(job))

    def story(self, job: str) -> Story:
        return self.send(calls.story(job))

    def why_run(self, job: str) -> WhyRun:
        return self.send(calls.why_run(job))

    def sizes(self, *, task: str = "", flow: str | None = None) -> Json:
        """The resources that jobs should have requested, from the usage of the newest; nothing acts on it."""
        return self.send(calls.sizes(task=task, flow=flow))

    def log(self, job: str, *, attempt: int | None = None) -> str:
        return self.send(calls.log(job, attempt=attempt))

    def outputs(self, job: str) -> Json:
        return self.send(calls.outputs(job))

    def cancel(self, job: str, *, reason: str | None = None) -> Job:
        return self.send(calls.cancel(job, reason=reason))

    def hold(self, job: str, *, reason: str | None = None) -> Job:
        return self.send(calls.hold(job, reason=reason))

    def let_go(self, job: str, *, holder: str | None = None) -> Job:
        return self.send(calls.let_go(job, holder=holder))

    def release(self, job: str, *, expected_attempt: int, expected_claim: str, reason: str) -> Job:
        return self.send(
            calls.release(job, expected_attempt=expected_attempt, expected_claim=expected_claim, reason=reason)
        )

    def retry(self, job: str, *, reason: str | None = None) -> Job:
        return self.send(calls.retry(job, reason=reason))

    def force_complete(self, job: str, *, expected_attempt: int, expected_generation: int = 0, reason: str) -> Job:
        expected = {"expected_attempt": expected_attempt, "expected_generation": expected_generation}
        return self.send(calls.force_complete(job, **expected, reason=reason))

    def force_fail(self, job: str, *, expected_attempt: int, expected_generation: int = 0, reason: str) -> Job:
        expected = {"expected_attempt": expected_attempt, "expected_generation": expected_generation}
        return self.send(calls.force_fail(job, **expected, reason=reason))

    def pilots(self, *, state: str | None = None) -> list[Json]:
        return self.send(calls.pilots(state=state))

    def alerts(self, *, limit: int = 100) -> list[Json]:
        return self.send(calls.alerts(limit=limit))

    def status(self) -> Json:
        return self.send(calls.status())

    def overview(self, span: str = "day") -> Json:
        """The results of the tenant's jobs in the last hour, day, week or month, and the outcomes of those that had a failure."""
        return self.send(calls.overview(span))

    def login_link(self) -> Json:
        """A link that logs a browser in once, to look."""
        return self.send(calls.login_link())

    def store_flow(self, text: str) -> StoredFlow:
        return self.send(run_calls.store_flow(text))

    def flow(self, version: str) -> Json:
        return self.send(run_calls.flow(version))

    def start_run(
        self, flow: str, params: Mapping[str, object] | None = None, *, key: str | None = None
    ) -> StartedRunJson:
        """Start a run of a stored flow; the same key again gives the same run."""
        return self.send(run_calls.start_run(flow, params, key=key))

    def dry_run(
        self, flow: str | None = None, *, text: str | None = None, params: Mapping[str, object] | None = None
    ) -> Json:
        """What a run of a stored flow, or of one in a text, would do; nothing is stored or started."""
        return self.send(run_calls.dry_run(flow, text=text, params=params))

    def run(self, name: str) -> RunDetails:
        return self.send(run_calls.run(name))

    def find_runs(
        self, filters: Filters | None = None, *, limit: int | None = None, cursor: str | None = None
    ) -> RunList:
        return self.send(run_calls.find_runs(filters, limit=limit, cursor=cursor))

    def history(self, run: str, *, limit: int | None = None, cursor: str | None = None) -> HistoryList:
        return self.send(run_calls.history(run, limit=limit, cursor=cursor))

    def run_story(self, run: str, *, limit: int | None = None, cursor: str | None = None) -> StoryPage:
        """Everything that is known of a run, its engine's log and the exception service's together."""
        return self.send(run_calls.story(run, limit=limit, cursor=cursor))

    def find_incidents(
        self, filters: Filters | None = None, *, limit: int | None = None, cursor: str | None = None
    ) -> IncidentList:
        return self.send(incident_calls.find_incidents(filters, limit=limit, cursor=cursor))

    def incident(self, name: str) -> IncidentWhole:
        return self.send(incident_calls.incident(name))

    def launch_playbook(self, incident: str, *, playbook: str = "", text: str = "") -> Json:
        """Carry out a playbook for an incident that waits for a person: a kept one by its name, or one in YAML."""
        return self.send(incident_calls.launch(incident, playbook=playbook, text=text))

    def triggers(self, run: str, *, task: str = "") -> list[Json]:
        """What can be raised for a run, or for one of its tasks."""
        return self.send(run_calls.triggers(run, task=task))

    def raise_exception(self, run: str, *, trigger: str = "", new: str = "", task: str = "", reason: str = "") -> Json:
        """Raise an exception: a trigger that is offered, or something new, which suspends the run."""
        return self.send(run_calls.raise_exception(run, trigger=trigger, new=new, task=task, reason=reason))

    def resume(
        self,
        run: str,
        *,
        task: str = "",
        params: Mapping[str, object] | None = None,
        reason: str = "",
        dry_run: bool = False,
    ) -> Json:
        """Resume a run that has ended, keeping its results, or only report what it would run again."""
        return self.send(run_calls.resume(run, task=task, params=params, reason=reason, dry_run=dry_run))

    def verb(self, run: str, kind: str, *, task: str = "", key: str | None = None, **more: object) -> Json:
        """Steer a run or one of its tasks; see the HTTP interface."""
        return self.send(run_calls.verb(run, kind, task=task, key=key, **more))

    def rule_sets(self) -> list[Json]:
        return self.send(rule_calls.rule_sets())

    def rule_context(self) -> list[Json]:
        """Every field that a condition may use."""
        return self.send(rule_calls.rule_context())

    def rule_set(self, name: str, version: int | None = None) -> Json:
        """A rule set such as `domain/site`, whole."""
        return self.send(rule_calls.rule_set(name, version))

    def rule(self, rule_set: str, rule: str) -> Json:
        return self.send(rule_calls.rule(rule_set, rule))

    def add_rule(self, rule_set: str, draft: Mapping[str, object]) -> Json:
        """Add a rule for its reference incident, as a shadow; see `rule_calls.add_rule`."""
        return self.send(rule_calls.add_rule(rule_set, draft))

    def apply_rules(self, rule_set: str, body: Mapping[str, object]) -> Json:
        """Make a set have the rules of a file; see `rule_calls.apply_rules`. What is new or changed is in shadow mode."""
        return self.send(rule_calls.apply_rules(rule_set, body))

    def set_rule_state(
        self,
        rule_set: str,
        rule: str,
        state: str,
        *,
        confirmed: bool = False,
        reason: str = "",
        progress: HowFar = lambda _done, _of: None,
    ) -> Json:
        """To `active` or `shadow`. Before a rule acts it is replayed; `Conflict` where that speaks against it and it is not `confirmed` with a reason."""
        call = rule_calls.set_rule_state(rule_set, rule, state, confirmed=confirmed, reason=reason)
        return self.watch(call, progress)

    def replay_rules(
        self, rule_set: str, question: Mapping[str, object], *, progress: HowFar = lambda _done, _of: None
    ) -> Json:
        """What the rules would have decided on recorded incidents; see `rule_calls.rule_replay`. Nothing is done."""
        return self.watch(rule_calls.replay_rules(rule_set, question), progress)

    def propose_rules(
        self, rule_set: str, query: Mapping[str, object], *, progress: HowFar = lambda _done, _of: None
    ) -> Json:
        """Rules that follow from recorded failures; see `rule_calls.rule_proposals`. Nothing is added."""
        return self.watch(rule_calls.propose_rules(rule_set, query), progress)

    def remove_rule(self, rule_set: str, rule: str, *, confirmed: bool = False) -> Json:
        return self.send(rule_calls.remove_rule(rule_set, rule, confirmed=confirmed))

    def rule_versions(self, rule_set: str) -> list[Json]:
        return self.send(rule_calls.rule_versions(rule_set))

    def rule_diff(self, rule_set: str, old: int, new: int | None = None) -> list[Json]:
        return self.send(rule_calls.rule_diff(rule_set, old, new))

    def roll_back_rules(self, rule_set: str, version: int) -> Json:
        return self.send(rule_calls.roll_back_rules(rule_set, version))

    def ask_rules(self, question: Mapping[str, object]) -> Json:
        """What the rules would say; see `rule_calls.ask_rules`. Nothing is done."""
        return self.send(rule_calls.ask_rules(question))

    def playbooks(self) -> list[Json]:
        return self.send(playbook_calls.playbooks())

    def playbook(self, name: str, version: str | None = None) -> Json:
        return self.send(playbook_calls.playbook(name, version))

    def put_playbook(self, name: str, text: str, *, type_: str | None = None) -> Json:
        """Keep a playbook under its name, for rules to conclude."""
        return self.send(playbook_calls.put_playbook(name, text, type_=type_))

    def compensations(self) -> list[Json]:
        """The compensation library."""
        return self.send(run_calls.compensations())

    def compensation(self, action: str, version: str | None = None) -> Json:
        return self.send(run_calls.compensation(action, version))

    def put_compensation(self, action: str, text: str) -> Json:
        """Register a compensation for its action."""
        return self.send(run_calls.put_compensation(action, text))

    def compensation_stack(self, run: str) -> list[Json]:
        """What of a run can be undone, what is undone first at the head."""
        return self.send(run_calls.compensation_stack(run))

    def rebind_compensation(
        self, run: str, number: int, *, key: str, version: str | None = None, reason: str = ""
    ) -> Json:
        """Give a compensation on the stack of a run another version."""
        return self.send(run_calls.rebind_compensation(run, number, key=key, version=version, reason=reason))

    def watch(self, call: Call[Json], progress: HowFar) -> Json:
        """Send a call that may take minutes, and report its progress. Not repeated when it breaks off."""
        request = call.request(self._http, self._servers.current, Accept="text/event-stream, application/json")
        reader = EventReader()
        try:
            answer = self._http.send(request, stream=True)
            try:
                if not answer.is_success:
                    answer.read()
                    raise problem(answer)
                if not answer.headers.get("content-type", "").startswith("text/event-stream"):
                    answer.read()
                    return call.read(answer)
                for event in (stream_event for piece in answer.iter_bytes() for stream_event in reader.feed(piece)):
                    document = orjson.loads(event.data or b"{}")
                    if event.name == "progress":
                        progress(document["incidents"], document["of"])
                    elif event.name == "problem":
                        raise problem(httpx.Response(document["status"], content=event.data, request=request))
                    elif event.name == "answer":
                        return dict(document)
            finally:
                answer.close()
        except httpx.TransportError as error:
            self._servers.next()
            raise Unavailable(
                f"the response was interrupted: {error or type(error).__name__}", outcome_unknown=True
            ) from error
        raise Unavailable("the server stopped before it finished", outcome_unknown=True)

    @contextmanager
    def stream(
        self, call: Call[None], *, last_id: str = "", silence: float = 60.0, hang_up: HangUp | None = None
    ) -> Iterator[Iterator[StreamEvent]]:
        """The events of a stream, until it ends. Opened once: to continue after a break, open it again.

        `Unavailable` when it cannot be opened, breaks, or is silent for longer than `silence` seconds. By `hang_up` another
        thread ends it.
        """
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_id} if last_id else {})
        request = call.request(self._http, self._servers.current, **headers)
        request.extensions["timeout"] = {**request.extensions["timeout"], "read": silence}
        try:
            answer = self._http.send(request, stream=True)
            try:
                if not answer.is_success:
                    answer.read()
                    raise problem(answer)
                self._look_at_clock(answer)
                if hang_up is not None:
                    hang_up.attach(answer)
                reader = EventReader(last_id)
                yield (event for piece in answer.iter_bytes() for event in reader.feed(piece))
            finally:
                answer.close()
        except httpx.TransportError as error:
            self._servers.next()
            raise Unavailable(
                f"the stream was interrupted: {error or type(error).__name__}", outcome_unknown=False
            ) from error
