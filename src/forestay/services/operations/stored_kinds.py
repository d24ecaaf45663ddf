"""Every kind of document that is stored: who writes it, who reads it, and what removes it after which setting.

The page docs/reference/retention.md is written from here (`just retention`), and a test compares this table with the code that stores documents: a new kind needs a row, and a row
needs a remover or a reason why none is needed.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Place(StrEnum):
    """Where documents of a kind are."""

    JOBS = "jobs"
    SPECIFICATIONS = "specifications"
    RECORDS = "records"
    DOCUMENTS = "documents"
    INCIDENTS = "incidents"
    PILOTS = "pilots"
    HEARTBEATS = "heartbeats"
    AUDIT = "audit log"


class Growth(StrEnum):
    """What makes their number grow."""

    JOBS = "jobs"
    FAILURES = "failures"
    REQUESTS = "submissions with a key"
    RUNS = "runs"
    PILOTS = "pilots"
    PEOPLE = "what people write"
    NONE = "does not grow"
    """One for each thing that is configured or deployed, or one in all."""


JOB_PRUNER = "services/operations/job_pruner.py"
RECORD_PRUNER = "services/operations/record_pruner.py"
INCIDENT_PRUNER = "services/operations/incident_pruner.py"
KEEP = "keep_days"
INCIDENTS = "keep_incidents_days"


class StoredKind(NamedTuple):
    """One kind of documents."""

    place: Place
    kind: str
    """Its name; `*` stands for a tenant, a site, an engine, a peer or a time."""
    what: str
    growth: Growth
    written: str
    """Paths under src/forestay."""
    read: str
    removed: str
    """The module that removes it; empty: nothing does, and `after` says why."""
    after: str
    """The setting, or the event, after which it is removed."""


def _record(kind: str, what: str, growth: Growth, written: str, read: str, removed: str, after: str) -> StoredKind:
    return StoredKind(Place.RECORDS, kind, what, growth, written, read, removed, after)


def _document(kind: str, what: str, growth: Growth, written: str, read: str, removed: str, after: str) -> StoredKind:
    return StoredKind(Place.DOCUMENTS, kind, what, growth, written, read, removed, after)


_COMPLETIONS = "services/jobs/job_completions.py"
_LOG = "apps/server/jobs/job_log.py"
_ROUTES = "apps/server/jobs/job_routes.py"
_VERSIONED = "services/shared/versioned_documents.py"
_RULES = "services/rules/rule_store.py"
_WES = "services/insertion/wes_runs.py"
_ENGINES = "services/exceptions/engines/engine_commands.py"
_APPROVALS = "services/exceptions/safeguards/approvals.py"
_PLACEMENT = "services/peers/run_placement.py"
_TAUGHT = "services/exceptions/detect/taught_patterns.py"
_DATA = "services/flows/run_liveness.py"
_SINGLE = "one document, which is overwritten"
_PEOPLE = "written by people only, and named by rules, runs or histories as long as those are kept"

KINDS: tuple[StoredKind, ...] = (
    StoredKind(
        Place.JOBS, "job", "a job with its last events", Growth.JOBS,
        "services/jobs/job_submitter.py", "services/scheduling/claim_dispatcher.py", JOB_PRUNER,
        f"{KEEP} after its last write, when its run and all above it are over and its callback is delivered",
    ),
    StoredKind(
        Place.SPECIFICATIONS, "specification", "what jobs of the same content share", Growth.JOBS,
        "services/jobs/job_submitter.py", "services/jobs/specification_cache.py",
        "services/operations/specification_pruner.py", f"{KEEP} after its last use, at least 7 days, when no job names it",
    ),
    # Beside a job
    _record("evidence", "how an attempt failed, with the end of its output", Growth.FAILURES, _COMPLETIONS, "services/exceptions/detect/failure_detector.py", JOB_PRUNER, "its job"),
    _record("log", "the end of the output of an attempt that succeeded", Growth.JOBS, _COMPLETIONS, _LOG, JOB_PRUNER, "its job"),
    _record("staging", "a source of a file that failed although another served it", Growth.FAILURES, _COMPLETIONS, _ROUTES, JOB_PRUNER, "its job"),
    _record("late-completion", "a completion that did not count", Growth.FAILURES, _COMPLETIONS, "services/data/storage_cleaner.py", JOB_PRUNER, "its job"),
    _record("live-log", "a piece of the output of a running attempt that somebody follows", Growth.PEOPLE, "apps/server/pilots/pilot_routes.py", _LOG, JOB_PRUNER, "its job"),
    _record("chapter", "older lines of a job's story", Growth.JOBS, "services/shared/checked_writer.py", _ROUTES, JOB_PRUNER, "its job"),
    _record("conversation", "the requests to a downstream TES server about an attempt", Growth.JOBS, "services/insertion/task_sender.py", "apps/server/insertion/conversation_routes.py", JOB_PRUNER, "its job"),
    _record("tes-told", "that the task of a job was created downstream", Growth.JOBS, "services/insertion/task_factory.py", "services/insertion/task_factory.py", JOB_PRUNER, "its job"),
    _record("key", "an idempotency key, with the digest of its request", Growth.REQUESTS, "services/jobs/job_submitter.py", "services/jobs/job_submitter.py", RECORD_PRUNER, "keep_keys_days, when none of its jobs is left"),
    _record("alert", "something that people are notified of", Growth.FAILURES, "services/jobs/runtime_alerts.py", "services/operations/notifier.py", JOB_PRUNER, KEEP),
    _record("order", "a request to a pilot", Growth.PEOPLE, "services/jobs/job_control.py", "services/pilots/pilot_channels.py", JOB_PRUNER, KEEP),
    # Beside a run
    _record("run-event", "an event of a run's history", Growth.RUNS, "adapters/temporal/activities.py", "services/operations/lineage_reporter.py", RECORD_PRUNER, f"{KEEP}, when the run and all above it are over"),
    _record("worklet", "for which run a worklet was started", Growth.FAILURES, "services/exceptions/act/worklet_runner.py", _DATA, RECORD_PRUNER, f"{KEEP}, when the run and all above it are over"),
    _record("listing", "the name and length of the listing of a round", Growth.RUNS, "services/data/listings.py", "services/data/listings.py", RECORD_PRUNER, f"{KEEP}, when the run and all above it are over"),
    _record("listing-page", "up to 1,000 members of a listing", Growth.RUNS, "services/data/listings.py", "services/data/listings.py", RECORD_PRUNER, f"{KEEP}, when the run and all above it are over"),
    _record("wes-run", "a run that was requested through WES", Growth.RUNS, "services/insertion/wes_run_starter.py", _WES, RECORD_PRUNER, f"{KEEP}, when the run and all above it are over"),
    _record("wes-end", "the final state of such a run", Growth.RUNS, _WES, _WES, RECORD_PRUNER, f"{KEEP}, when the run and all above it are over"),
    _record("wes-cancel", "a request to cancel such a run", Growth.PEOPLE, _WES, _WES, RECORD_PRUNER, f"{KEEP}, when the run and all above it are over"),
    _record("flow", "a version of a flow, by the hash of its content", Growth.PEOPLE, "services/flows/flow_store.py", "services/flows/flow_store.py", "", "rules, playbooks, late-bound tasks and schedules name flows by their version, and so do incidents; one for each edit, not for each run"),
    # Of other engines, approvals, peers, tokens
    _record("engine-event", "an event that another engine reported", Growth.RUNS, "services/exceptions/engines/engine_event_intake.py", "services/operations/run_timeline.py", RECORD_PRUNER, f"{KEEP} after its run ended, or after its last event"),
    _record("engine-order", "a command to another engine", Growth.FAILURES, _ENGINES, _ENGINES, RECORD_PRUNER, f"{KEEP} after its run ended, or after its last event"),
    _record("engine-answer", "the engine's reply", Growth.FAILURES, _ENGINES, _ENGINES, RECORD_PRUNER, f"{KEEP} after its run ended, or after its last event"),
    _record("approval", "a request for another person's approval", Growth.PEOPLE, _APPROVALS, _APPROVALS, RECORD_PRUNER, INCIDENTS),
    _record("approval-answer", "the answer", Growth.PEOPLE, _APPROVALS, _APPROVALS, RECORD_PRUNER, INCIDENTS),
    _record("approval-done", "that it was carried out", Growth.PEOPLE, _APPROVALS, _APPROVALS, RECORD_PRUNER, INCIDENTS),
    _record("peer-event", "what happened to sub-flows at another domain", Growth.RUNS, "services/peers/peer_links.py", "services/peers/peer_links.py", RECORD_PRUNER, KEEP),
    _record("revoked", "that a pilot's access was revoked", Growth.PEOPLE, "services/pilots/pilot_revocations.py", "services/pilots/pilot_revocations.py", RECORD_PRUNER, KEEP),
    _record("ended-session", "a browser's session that was ended", Growth.PEOPLE, "services/operations/token_revocations.py", "services/operations/token_revocations.py", RECORD_PRUNER, KEEP),
    _record("revoked-token", "a token that was revoked, or all of a person until then", Growth.PEOPLE, "services/operations/token_revocations.py", "services/operations/token_revocations.py", RECORD_PRUNER, "a day after the token expired, where retention is on; those of a person are kept"),
    # Incidents
    StoredKind(
        Place.INCIDENTS, "incident", "an exception with the context of its decision", Growth.FAILURES,
        "services/exceptions/detect/failure_detector.py", "services/rules/rule_replay.py", INCIDENT_PRUNER,
        f"{INCIDENTS} after it was closed, when its job and run are over and no rule or correction names it",
    ),
    StoredKind(Place.INCIDENTS, "status", "its present state", Growth.FAILURES, "services/shared/incident_settlement.py", "services/exceptions/inbox/inbox_reader.py", INCIDENT_PRUNER, "its incident"),
    StoredKind(Place.INCIDENTS, "decision", "what was decided about it, and why", Growth.FAILURES, "services/exceptions/record/decision_log.py", "services/rules/rule_replay.py", INCIDENT_PRUNER, "its incident"),
    StoredKind(Place.INCIDENTS, "step", "that a step of a playbook began or ended", Growth.FAILURES, "services/exceptions/act/playbook_runner.py", "services/exceptions/act/playbook_runner.py", INCIDENT_PRUNER, "its incident"),
    StoredKind(
        Place.AUDIT, "page", "up to 200 entries of who did what, and why", Growth.FAILURES,
        "services/exceptions/record/audit_log.py", "services/exceptions/record/audit_log.py",
        "services/operations/audit_pruner.py", "keep_audit_days; by default never",
    ),
    StoredKind(Place.PILOTS, "pilot", "a pilot, what it offers, and whether it is there", Growth.PILOTS, "services/pilots/pilot_enrolment.py", "services/pilots/orphan_scanner.py", JOB_PRUNER, f"{KEEP} after it registered, when it is gone"),
    StoredKind(Place.HEARTBEATS, "page", "the last heartbeats of some pilots at one server", Growth.NONE, "services/pilots/heartbeats.py", "services/pilots/orphan_scanner.py", "services/pilots/orphan_scanner.py", "when its server is gone"),
    # Documents that belong to runs and jobs
    _document("delivery", "which completions of a shard its run has received", Growth.RUNS, "services/flows/completion_relay.py", "services/flows/completion_relay.py", JOB_PRUNER, "the jobs of its run"),
    _document("reuse", "which job has made a result of this content", Growth.JOBS, "services/flows/result_reuse.py", "services/flows/result_reuse.py", JOB_PRUNER, "its job"),
    _document("remake-wait", "a job that waits for a lost output to be made again", Growth.FAILURES, "services/exceptions/act/output_remaker.py", "services/exceptions/act/output_remaker.py", "services/exceptions/act/output_remaker.py", "when the wait is over"),
    _document("question", "a question of a run that waits for a person", Growth.RUNS, "services/flows/questions.py", "services/flows/questions.py", RECORD_PRUNER, f"when it is closed (it is then the next kind), or {KEEP} if its run was terminated"),
    _document("question-closed", "a question that was answered or withdrawn", Growth.RUNS, "services/flows/questions.py", "services/flows/questions.py", JOB_PRUNER, "a day after it expired"),
    _document("external-events", "events without a waiting task, and tasks that wait", Growth.RUNS, "services/flows/external_events.py", "services/flows/external_events.py", JOB_PRUNER, "a day after its last event expired; a waiting run keeps it"),
    _document("external-events-due", "the same, while a run is still to be told", Growth.RUNS, "services/flows/external_events.py", "services/flows/external_events.py", "services/flows/external_events.py", "when the run has been told (it is then the kind above)"),
    _document("placing-here", "a sub-flow that is placed in this domain", Growth.RUNS, _PLACEMENT, "services/flows/placed_runs.py", _PLACEMENT, "when it is over (it is then `placing-over`)"),
    _document("placing@*", "a sub-flow that is placed at another domain", Growth.RUNS, _PLACEMENT, "services/peers/peer_poller.py", _PLACEMENT, "when it is over (it is then `placing-over`)"),
    _document("placing-left@*", "a run at another domain that its sub-flow has left", Growth.RUNS, _PLACEMENT, "services/peers/peer_poller.py", _PLACEMENT, "when its end is known (it is then `placing-over`)"),
    _document("placing-over", "a placement that is over", Growth.RUNS, _PLACEMENT, "services/flows/placed_runs.py", RECORD_PRUNER, "when its parent run is over and no job of it is left"),
    _document("engine-run:*", "a run of another engine that has not ended", Growth.RUNS, _ENGINES, _ENGINES, RECORD_PRUNER, f"{KEEP} after its last event"),
    _document("engine-run-ended", "a run of another engine that has ended", Growth.RUNS, _ENGINES, _ENGINES, RECORD_PRUNER, f"{KEEP} after its end"),
    _document("engine-orders", "the commands that wait for an engine", Growth.NONE, _ENGINES, _ENGINES, "", "one for each reporter of an engine, with at most 500 commands"),
    _document("launch:*", "a pilot that is to be started or runs, at a site", Growth.PILOTS, "services/pilots/pilot_launches.py", "services/sites/site_agent.py", "services/pilots/pilot_launches.py", "when it ended (it is then the next kind)"),
    _document("launch-ended:*", "a launch that ended, by the six hours in which it did", Growth.PILOTS, "services/pilots/pilot_launches.py", "services/sites/fleet_planner.py", RECORD_PRUNER, KEEP),
    _document("host", "the pilots of a host that share a cache", Growth.PILOTS, "services/pilots/neighbour_registry.py", "services/pilots/neighbour_registry.py", RECORD_PRUNER, "when none of its pilots is there, where retention is on"),
    _document("replica", "where copies of a file are that the naming rules do not describe", Growth.PEOPLE, "services/data/stored_catalogue.py", "services/data/stored_catalogue.py", "services/data/stored_catalogue.py", "when the last copy is deregistered (it is then the next kind); files are the operator's"),
    _document("replica-none", "a file of which no copy is registered any more", Growth.PEOPLE, "services/data/stored_catalogue.py", "services/data/stored_catalogue.py", RECORD_PRUNER, "at the next pass, where retention is on"),
    # Secrets, and what people do
    _document("login", "a link by which somebody logs in once", Growth.PEOPLE, "services/operations/browser_sessions.py", "services/operations/browser_sessions.py", JOB_PRUNER, "a day after it expired"),
    _document("enrolment", "a secret by which pilots enrol", Growth.PILOTS, "services/pilots/pilot_enrolment.py", "services/pilots/pilot_enrolment.py", JOB_PRUNER, "a day after it expired"),
    _document("inbox-act", "what a person did about a group of failures", Growth.PEOPLE, "services/exceptions/inbox/inbox_actions.py", "services/exceptions/inbox/inbox_actions.py", RECORD_PRUNER, INCIDENTS),
    _document("error-triage", "whether an error is assigned, snoozed or resolved", Growth.PEOPLE, "services/exceptions/inbox/error_triages.py", "services/exceptions/inbox/error_triages.py", RECORD_PRUNER, f"{INCIDENTS}, when no incident of the error is left"),
    _document("taught-patterns", "the patterns that operators taught, and causes that they corrected", Growth.NONE, _TAUGHT, _TAUGHT, "", "one for each tenant, with at most 100 patterns and 200 corrections"),
    _document("taught-pattern-note", "that waiting failures must be classified again", Growth.PEOPLE, _TAUGHT, "services/exceptions/failure_review.py", _TAUGHT, "when they were"),
    _document("dismissed-proposals", "proposals that people declined", Growth.NONE, "services/rules/rule_proposals.py", "services/rules/rule_proposals.py", "", "one for each rule set, with at most 500 of them"),
    _document("rules-head", "the newest version of a rule set", Growth.NONE, _RULES, _RULES, "", "one for each rule set"),
    _document("rules-version", "the changes of one version of a rule set", Growth.PEOPLE, _RULES, _RULES, "", "a rule set is the sum of its versions, and each can be restored"),
    _document("rules-reference-incident", "the context for which a rule was written", Growth.PEOPLE, _RULES, _RULES, "", "every later rule is tested against it, and every version of a rule set can be restored"),
    _document("rules-mark", "the newest versions of all rule sets", Growth.NONE, _RULES, _RULES, "", _SINGLE),
    _document("playbook", "the versions of a playbook", Growth.PEOPLE, _VERSIONED, "services/rules/playbook_store.py", "", _PEOPLE),
    _document("playbook-version", "one version of a playbook", Growth.PEOPLE, _VERSIONED, "services/rules/playbook_store.py", "", _PEOPLE),
    _document("compensation", "the versions of a compensation", Growth.PEOPLE, _VERSIONED, "services/flows/compensation_library.py", "", _PEOPLE),
    _document("compensation-version", "one version of a compensation", Growth.PEOPLE, _VERSIONED, "services/flows/compensation_library.py", "", _PEOPLE),
    _document("late_bound", "the flow that is bound to a late-bound task", Growth.NONE, "services/rules/worklet_bindings.py", "services/rules/worklet_bindings.py", "", "one for each late-bound task"),
    # One for each thing that is configured or deployed
    _document("flow-suspension", "who suspends a flow, and commands for its runs", Growth.PEOPLE, "services/flows/flow_suspensions.py", "services/flows/flow_suspensions.py", "", "one for each version of a flow that was ever suspended; its version counts the commands"),
    _document("flow-suspensions-mark", "which flows are suspended", Growth.NONE, "services/flows/flow_suspensions.py", "services/flows/flow_suspensions.py", "", _SINGLE),
    _document("hosts", "the health of the hosts of a tenant", Growth.NONE, "services/scheduling/host_health_tracker.py", "services/scheduling/host_health_tracker.py", "", "one for each tenant, with at most 1,000 hosts"),
    _document("quota-policy", "the quotas, teams and shares of a tenant", Growth.PEOPLE, "services/scheduling/quota_policies.py", "services/scheduling/quota_policies.py", "services/scheduling/quota_policies.py", "when its last quota is removed"),
    _document("quota-ledger", "which attempts use a quota", Growth.NONE, "services/scheduling/quota_ledgers.py", "services/scheduling/quota_ledgers.py", "services/scheduling/quota_ledgers.py", "a day after it became empty"),
    _document("fair-share", "what each owner of a tenant used lately", Growth.NONE, "services/scheduling/fair_shares.py", "services/scheduling/fair_shares.py", "services/scheduling/fair_shares.py", "when the tenant has no shares any more"),
    _document("licence", "who holds the seats of a licence", Growth.NONE, "services/scheduling/licence_seats.py", "services/scheduling/licence_seats.py", "services/scheduling/licence_seats.py", "when the licence is removed"),
    _document("storms", "the failures of the last minutes, and open storms", Growth.NONE, "services/exceptions/safeguards/action_limits.py", "services/exceptions/safeguards/action_limits.py", "", "one for each tenant"),
    _document("safeguard", "a rate limit's bucket", Growth.NONE, "services/exceptions/safeguards/action_limits.py", "services/exceptions/safeguards/action_limits.py", "", "one for each tenant, owner, site and rule"),
    _document("stop", "an emergency stop", Growth.NONE, "services/exceptions/safeguards/action_limits.py", "services/exceptions/safeguards/action_limits.py", "", "one for each tenant, and one for all"),
    _document("site", "the policy and the last report of a site", Growth.NONE, "services/sites/site_registry.py", "services/sites/site_registry.py", "", "one for each site"),
    _document("peer", "another domain", Growth.NONE, "services/peers/peer_registry.py", "services/peers/peer_registry.py", "", "one for each domain, at most 1,000"),
    _document("peer-removed", "a domain that was removed", Growth.PEOPLE, "services/peers/peer_registry.py", "services/peers/peer_registry.py", "", "its name and key are not to be taken by another"),
    _document("peer-lease", "until when runs for another domain continue", Growth.NONE, "services/peers/peer_leases.py", "services/peers/peer_leases.py", "", "one for each domain"),
    _document("peer-link", "the state of the connection to another domain", Growth.NONE, "services/peers/peer_links.py", "services/peers/peer_links.py", "", "one for each domain"),
    _document("reconcilers", "the last report of each reconciler", Growth.NONE, "services/pilots/reconciler_registry.py", "services/pilots/reconciler_registry.py", "services/pilots/reconciler_registry.py", "a line some time after its last report"),
    _document("relay", "up to where completions of runs were delivered", Growth.NONE, "services/flows/completion_relay.py", "services/flows/completion_relay.py", "", _SINGLE),
    _document("lineage", "up to where lineage events were sent", Growth.NONE, "services/operations/lineage_reporter.py", "services/operations/lineage_reporter.py", "", _SINGLE),
    _document("notification_events", "the outbox of a notification channel", Growth.NONE, "services/operations/notifier.py", "services/operations/notifier.py", "services/operations/notifier.py", "an entry when it was sent or given up; one document for each channel"),
    _document("generation", "the generation of the domain", Growth.NONE, "services/operations/store_generation.py", "services/jobs/store_marks.py", "", _SINGLE),
    _document("pruned", "up to when jobs and incidents may have been removed", Growth.NONE, "services/jobs/store_marks.py", "services/jobs/store_marks.py", "", _SINGLE),
)  # fmt: skip


class OtherPlace(NamedTuple):
    """Something that is kept outside of the store."""

    where: str
    what: str
    written: str
    removed: str
    after: str


ELSEWHERE: tuple[OtherPlace, ...] = (
    OtherPlace("Temporal", "the history of a run", "orchestrators", "Temporal", "the retention of its namespace, after the run ended; `forestay doctor` compares it with keep_days"),
    OtherPlace("Temporal", "a schedule", "`forestay schedules`", "`forestay schedules delete`", "when a person deletes it"),
    OtherPlace("Pilot's disk", "the work folder of an attempt", "the pilot", "the pilot", "at the end of the attempt; one of a pilot that was killed, when the next pilot starts there"),
    OtherPlace("Pilot's disk", "cached inputs and outputs", "the pilot", "the pilot", "by `--cache-policy`, when they exceed `--cache-space`"),
    OtherPlace("Pilot's disk", "container images", "the pilot", "the pilot", "the longest unused, when they exceed the space for images"),
    OtherPlace("Pilot's disk", "completions that are not delivered yet", "the pilot", "the pilot", "when a server has settled them"),
    OtherPlace("Pilot's disk", "completions that were refused or cannot be read (`.refused`, `.damaged`)", "the pilot", "the next pilot there", "30 days after they were set aside"),
    OtherPlace("Site agent's spool", "logs and scripts of launches", "the site agent", "the site agent", "14 days after the last write; secrets when their launch is over"),
    OtherPlace("Shim's spool", "the record of a batch job", "the shim", "the watcher", "when the job is settled and the batch system has forgotten it"),
    OtherPlace("Storage elements", "outputs and checkpoints", "pilots", "operators; `free` removes what lost attempts left", "never by age: the files are the operator's"),
)  # fmt: skip
