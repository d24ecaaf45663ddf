"""The code that keeps the promises, and the tests that are to notice when it does not."""

from __future__ import annotations

from dataclasses import dataclass

UNIT = "tests/unit/"


@dataclass(frozen=True, slots=True)
class Target:
    """One file; its near tests run first, its far ones only for a fault that those did not notice. All are below tests/unit."""

    promise: str
    file: str
    near: tuple[str, ...]
    far: tuple[str, ...] = ()
    functions: frozenset[str] = frozenset()
    """Only these of the file are taken; empty: all. The others need real servers, which a mutant cannot be given."""


def _of(promise: str, *files: tuple[str, str, str]) -> tuple[Target, ...]:
    return tuple(
        Target(promise, f"src/{file}.py", tuple(near.split()), tuple(far.split())) for file, near, far in files
    )


DOMAIN, SERVICES, SERVER, PILOT = "forestay/domain", "forestay/services", "forestay/apps/server", "forestay_pilot"
CLAIMS = "apps/server/scheduling/test_claims.py"
JOBS = " ".join(
    f"domain/jobs/test_{name}.py"
    for name in ("fencing", "given_back", "effects", "lifecycle", "claim_machine", "story")
)
ENDS = "apps/server/jobs/test_steering.py apps/server/jobs/test_submit.py"

TARGETS: tuple[Target, ...] = (
    *_of(
        "claims",
        (f"{DOMAIN}/jobs/claim", JOBS, f"{CLAIMS} services/jobs/test_job_control.py {ENDS}"),
        (f"{SERVICES}/scheduling/claim_dispatcher", "services/scheduling", f"{CLAIMS} apps/server/scheduling"),
        (f"{SERVICES}/jobs/claim_releaser", "apps/server/pilots/test_gone_pilots.py", f"apps/server/pilots {CLAIMS}"),
    ),
    *_of(
        "leases",
        (f"{PILOT}/link/lease", "pilot/link/test_lease.py", "pilot/link pilot/test_life.py"),
        (f"{PILOT}/link/held_claims", "pilot/link/test_lease.py", "pilot/link pilot/test_life.py"),
        (f"{DOMAIN}/pilots/orphans", "domain/pilots", "apps/server/pilots/test_gone_pilots.py"),
        (f"{SERVICES}/pilots/heartbeats", "services/pilots", "apps/server/pilots"),
    ),
    *_of(
        "completion",
        (f"{SERVICES}/jobs/job_completions", f"services/exceptions/test_failures.py {CLAIMS}", f"apps/server/pilots {ENDS}"),
        (f"{DOMAIN}/jobs/lifecycle", JOBS, f"{CLAIMS} {ENDS}"),
        (f"{PILOT}/claims/completion_queue", "pilot/link", "pilot/test_life.py pilot/claims pilot/process"),
    ),
    *_of(
        "idempotency",
        (f"{DOMAIN}/jobs/submission", f"{JOBS} domain/jobs/test_colocation_key.py", ENDS),
        (f"{SERVICES}/jobs/job_submitter", "services/scheduling/test_first_claims.py", f"{ENDS} {CLAIMS}"),
        (f"{SERVICES}/shared/checked_writer", "services/shared services/scheduling/test_claim_dispatcher.py", f"{ENDS} {CLAIMS}"),
    ),
    *_of(
        "tenants and roles",
        (f"{SERVICES}/operations/authenticator", "apps/server/operations/test_access.py", "apps/server/operations"),
        (f"{SERVER}/http/request_context", "apps/server/operations/test_access.py apps/server/operations/test_tenants.py", "apps/server/operations apps/server/pages"),
        (f"{SERVICES}/operations/token_revocations", "apps/server/operations/test_access.py apps/server/operations/test_sessions.py", "apps/server/operations"),
    ),
    *_of(
        "safeguards",
        (f"{DOMAIN}/exceptions/safeguards/safeguards", "domain/exceptions/safeguards", "services/exceptions/safeguards services/exceptions/test_failure_actions.py apps/server/exceptions/test_safeguards.py"),
        (f"{DOMAIN}/exceptions/safeguards/rate_limit", "domain/exceptions/safeguards", "services/exceptions/test_failure_actions.py"),
        (f"{DOMAIN}/exceptions/safeguards/storm", "domain/exceptions/safeguards", "services/exceptions/test_failure_actions.py apps/server/exceptions/test_safeguards.py"),
        (f"{DOMAIN}/exceptions/safeguards/approval_policy", "domain/exceptions/safeguards", "apps/server/exceptions/test_approvals.py"),
        (f"{SERVICES}/exceptions/safeguards/action_limits", "services/exceptions/test_failure_actions.py", "services/exceptions apps/server/exceptions/test_safeguards.py"),
    ),
    *_of(
        "rule walk",
        (f"{DOMAIN}/rules/rule_tree", "domain/rules/test_rule_tree.py domain/rules/test_rule_set.py domain/rules/test_rule_index.py", "services/rules services/exceptions/test_failures.py"),
        (f"{DOMAIN}/rules/rule_set", "domain/rules/test_rule_tree.py domain/rules/test_rule_set.py domain/rules/test_rule_index.py", "services/rules services/exceptions/test_failures.py"),
        (f"{DOMAIN}/rules/rule_index", "domain/rules/test_rule_index.py domain/rules/test_rule_set.py", "services/rules services/exceptions/test_failures.py"),
    ),
    *_of(
        "compensation",
        (f"{DOMAIN}/flows/execution/compensation", "domain/flows/test_patterns.py domain/flows/execution", "domain/flows"),
        (f"{DOMAIN}/flows/execution/library", "domain/flows/execution/test_library.py domain/flows/execution", "domain/flows apps/server/flows/test_compensations.py"),
        (f"{DOMAIN}/flows/execution/run_end", "domain/flows/test_patterns.py domain/flows/execution", "domain/flows"),
    ),
    *_of(
        "outputs that last",
        (f"{PILOT}/staging/outputs", "pilot/staging/test_outputs.py pilot/staging/test_stage_out.py", "pilot/staging pilot/test_life.py"),
    ),
    Target(
        "steering of arrays",
        "src/forestay/adapters/slurm/steering.py",
        ("adapters/test_slurm_dependents.py", "adapters/test_slurm_words.py"),
        ("adapters", "services/insertion"),
        frozenset({"read_identities", "read_accounted_identities", "read_elements", "is_given_up", "without_array", "_refuse_several"}),
    ),
    *_of(
        "steering of arrays",
        (f"{SERVICES}/insertion/batch_job_recovery", "services/insertion/test_batch_job_recovery.py", "services/insertion apps/server/insertion"),
    ),
    *_of(
        "keys of reuse",
        (f"{DOMAIN}/jobs/reuse", "domain/jobs/test_reuse.py", "services/flows/test_dry_runner.py apps/server/data/test_data.py services/operations/test_right_sizing.py"),
        (f"{SERVICES}/flows/result_reuse", "services/flows/test_dry_runner.py", "apps/server/flows services/flows"),
    ),
)  # fmt: skip
