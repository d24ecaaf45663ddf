"""The protection against untrusted input and attackers, row by row: the requirement, the measure, the tests that show it, and what is missing.

The page `docs/explanation/security.md` is generated from it (`uv run python scripts/security_page.py`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One requirement."""

    asked: str
    done: str
    tests: tuple[str, ...]
    """`file::name`, below `tests/`."""
    missing: str = ""
    """What is required and not implemented, or implemented and not tested; empty: nothing."""

    @property
    def shown(self) -> str:
        if not self.tests:
            return "no"
        return "in part" if self.missing else "yes"


ACCESS, BAD, TENANTS = (
    "unit/apps/server/operations/test_access.py",
    "unit/apps/server/http/test_bad_input.py",
    "unit/apps/server/operations/test_tenants.py",
)
CALLBACKS, OIDC, WEB = (
    "unit/apps/server/jobs/test_callbacks.py",
    "system/identity/test_oidc.py",
    "unit/pilot/staging/test_staging_web.py",
)
XML, BPEL, CEL = "unit/bpel/test_hostile_xml.py", "unit/bpel/test_reading.py", "unit/adapters/cel/test_conditions.py"
ENROL, CLOSED, SECRETS = (
    "unit/apps/server/pilots/test_enrolments.py",
    "system/openapi/test_closed.py",
    "system/identity/test_secrets.py",
)
JOB_SECRETS = "unit/pilot/job_secrets"
SEALED, TLS, SESSIONS = (
    "system/identity/test_temporal_sealed.py",
    "system/identity/test_tls.py",
    "unit/apps/server/operations/test_sessions.py",
)
PEERS, APPROVALS, CHAIN = (
    "unit/apps/server/peers/test_peers.py",
    "unit/apps/server/exceptions/test_approvals.py",
    "unit/domain/exceptions/safeguards/test_audit.py",
)

EXPECTED: tuple[Row, ...] = (
    Row(
        "no route or method without a token; deny by default",
        "every route is called with every kind of invalid token, and so is every operation of the OpenAPI description, with real bodies; each route names its required role, and every role is tried on every route",
        (f"{ACCESS}::test_every_route_refuses_bad_tokens", f"{CLOSED}::test_no_route_is_open", f"{ACCESS}::test_every_route_checks_a_role", f"{ACCESS}::test_every_route_refuses_the_wrong_role"),
    ),
    Row(
        "tenants are isolated",
        "objects of another tenant do not exist in lists, streams, claims and heartbeats",
        (f"{CLOSED}::test_a_stranger_of_another_tenant_learns_nothing", f"{TENANTS}::test_a_foreign_job_is_not_there", "contract/test_search.py::test_tenants_are_separate"),
    ),
    Row(
        "OAuth2 and OpenID Connect, `aud` for each domain",
        "[single sign-on](../how-to/single-sign-on.md): a fixed list of algorithms, only keys of the provider, declared tenants and roles",
        (f"{OIDC}::test_what_is_no_token_of_the_provider_is_refused", f"{OIDC}::test_every_route_refuses_a_token_of_another_issuer"),
    ),
    Row(
        "key rotation",
        "the provider's keys are read again; several of our own keys are valid during a rotation",
        (f"{OIDC}::test_keys_are_rotated_and_a_key_that_is_gone_is_good_no_more", "system/identity/test_key_rotation.py::test_two_keys_are_good_while_one_takes_the_place_of_the_other"),
    ),
    Row(
        "a user's token is never sent to another domain",
        "a domain signs its own token for one other domain, tenant and interface; an administrator may register peers",
        (f"{PEERS}::test_a_token_is_good_at_one_domain_for_one_tenant_and_one_interface", f"{PEERS}::test_administrators_of_the_administrative_tenant_keep_the_register"),
        "token exchange by RFC 8693 is not implemented: peers trust each other's keys, without a third party",
    ),
    Row(
        "one outgoing HTTP client: allow-list, pinned addresses, no redirects",
        "callbacks, webhooks, peers, the identity provider, lineage and storage elements use one client; the clients for task servers and staging have the same checks; a test lists every place in the code that opens a connection ([decision 94](../decisions/0094-one-guarded-http-client-for-all-outgoing-requests.md))",
        ("system/identity/test_outbound.py::test_there_is_no_other_way_out", "system/identity/test_outbound.py::test_only_listed_hosts_are_called_and_no_redirect_is_followed", "system/identity/test_outbound.py::test_documents_of_a_provider_lead_to_no_other_host", "system/identity/test_outbound.py::test_a_peer_that_drips_is_not_waited_for", "system/identity/test_outbound.py::test_a_name_is_looked_up_once_and_that_address_is_called", f"{WEB}::test_the_very_address_that_was_checked_is_called", f"{CALLBACKS}::test_a_host_that_is_no_longer_allowed_is_not_called"),
        "egress proxies are not supported; apprise and OpenTelemetry open their own connections, to addresses from the settings",
    ),
    Row(
        "mutual TLS",
        "[a server can require client certificates](../how-to/tls.md); users' clients, pilots, site agents and peers present theirs, from files that only their owners can read; revoked certificates are rejected",
        (f"{TLS}::test_a_persons_client_shows_its_certificate", f"{TLS}::test_site_agents_and_peers_show_theirs", f"{TLS}::test_a_pilot_does_not_show_a_key_that_others_can_read", f"{TLS}::test_only_who_shows_a_certificate_of_the_authority_is_heard", f"{TLS}::test_a_pilot_shows_its_certificate_and_runs_a_job", f"{TLS}::test_a_renewed_certificate_is_taken_without_a_restart", f"{TLS}::test_who_shows_a_withdrawn_certificate_is_not_heard"),
    ),
    Row(
        "one short-lived credential for each pilot, valid for that pilot only",
        "at most 15 minutes, issued for a one-time secret; revoked at once ([decision 95](../decisions/0095-revoke-a-single-pilot-through-its-document.md))",
        ("unit/apps/server/pilots/test_revoked.py::test_a_revoked_pilot_is_refused_at_every_server_and_its_jobs_are_left_to_its_lease", f"{ENROL}::test_a_secret_is_traded_for_a_pilots_token", f"{TENANTS}::test_a_pilot_speaks_for_itself_only", f"{ACCESS}::test_a_token_renews_only_for_a_pilot_that_is_registered"),
        "it is not bound to a certificate or a key of the pilot",
    ),
    Row(
        "payloads see neither the pilot's token nor its environment",
        "separate environment, the pilot process is not dumpable; one tenant for each pilot",
        ("unit/pilot/process/test_isolation.py::test_no_payload_sees_the_token", "unit/pilot/process/test_payload.py::test_a_payload_sees_neither_the_token_nor_the_pilots_environment", "unit/pilot/process/test_payload.py::test_a_pilot_is_not_dumpable", f"{TENANTS}::test_a_pilot_gets_jobs_of_its_own_tenant_only"),
        "without another user or a container a payload runs as the pilot's user; network isolation is up to the container",
    ),
    Row(
        "secrets by reference, in files that only their owner can read",
        "settings name a file or a variable, and are rejected when they contain the secret itself, including the credentials that sign S3 URLs; files with tokens, signing keys and certificates that others can read are rejected, other secret files are reported by `forestay doctor`",
        ("live/test_signed_addresses.py::test_credentials_that_are_missing_are_told_without_them", f"{SECRETS}::test_a_setting_that_is_a_secret_is_refused", f"{SECRETS}::test_what_goes_wrong_is_told_without_the_secret", "unit/apps/test_doctor.py::test_secrets_are_there_and_for_nobody_else", "unit/apps/cli/test_settings.py::test_a_token_file_that_others_can_read_is_refused"),
    ),
    Row(
        "secrets of jobs: by reference, for the owners that the site names, in no document or log",
        "the pilot reads them where the job runs, from a folder that it does not leave or from Vault; nobody may use what the site's list does not name; their values and usual encodings are taken out of the output before it is written ([decision 172](../decisions/0172-resolve-secrets-in-the-pilot-by-references-and-a-list-of-the-site.md))",
        ("system/hostile/test_secrets.py::test_the_secret_of_an_owner_is_in_nothing_that_others_see", f"{JOB_SECRETS}/test_checked_files.py::test_nothing_leads_out_of_the_folder", f"{JOB_SECRETS}/test_redaction.py::test_a_value_and_its_encodings_are_taken_out", f"{JOB_SECRETS}/test_vault.py::test_the_token_follows_no_redirect"),
        "jobs of one Unix user can look at each other while they run, and read what the pilot's user can; other encodings are not known",
    ),
    Row(
        "rules: approvals, replay before action, a global stop",
        "force-complete, release and actions on others' jobs need the approval of another person; no rule acts before it was replayed; one stop applies everywhere",
        (f"{APPROVALS}::test_nobody_counts_a_job_as_done_alone_and_another_person_lets_it", "contract/test_replayed_rules.py::test_no_rule_acts_before_it_was_replayed", "unit/apps/server/exceptions/test_safeguards.py::test_a_stop_holds_on_every_server_until_someone_lets_go"),
        "rules are not signed by their authors; the audit log records who changed what",
    ),
    Row(
        "audit log: append-only hash chain; one changed byte is detected",
        "readers verify it, also from outside; its end is [sent every hour](../how-to/notifications.md#where-the-audit-log-ends) so that it can be stored elsewhere",
        (f"{CHAIN}::test_one_changed_byte_of_what_is_shown_is_found", f"{CHAIN}::test_what_was_taken_out_is_missed", "unit/apps/server/exceptions/test_safeguards.py::test_the_log_is_a_chain_that_can_be_checked_from_outside", "unit/apps/server/operations/test_notifications.py::test_where_the_audit_log_ends_is_told_every_hour"),
    ),
    Row(
        "Temporal: mutual TLS, payloads and failure messages encrypted, no secret in search attributes",
        "encrypted by Forestay before data leave the process",
        (f"{SEALED}::test_temporal_by_mutual_tls_keeps_nothing_that_it_could_read", "system/identity/test_codec.py::test_a_changed_byte_is_seen"),
        "Temporal's own authorizer is up to its operator",
    ),
    Row(
        "only servers access OpenSearch",
        "pilots and clients do not know its address; its password is never shown; Forestay itself separates tenants",
        ("unit/adapters/test_opensearch_hosts.py::test_a_password_shows_nowhere", "contract/test_search.py::test_tenants_are_separate"),
        "OpenSearch's own security plugin is up to its operator; the tests run without it",
    ),
    Row(
        "web pages: no inline script, strict cookie, CSRF token, no exemption by path suffix",
        "as required",
        ("system/web/test_inbox.py::test_the_policy_lets_nothing_in_that_is_written_into_the_page", f"{SESSIONS}::test_an_act_needs_the_pages_own_word", f"{SESSIONS}::test_another_site_cannot_make_a_browser_ask", f"{ACCESS}::test_unknown_addresses_are_problems_and_lead_nowhere"),
    ),
    Row(
        "supply chain",
        "digests of all pinned packages, audits that fail closed, a software bill of materials",
        ("system/deploy/test_supply_chain.py::test_an_audit_of_python_packages_fails_closed", "system/deploy/test_supply_chain.py::test_every_part_is_listed_with_its_digest"),
        "no build provenance (SLSA), and pilots are not signed",
    ),
)  # fmt: skip

INPUTS: tuple[Row, ...] = (
    Row("XML with a DTD, a billion laughs", "any DTD is rejected within 50 ms", (f"{XML}::test_is_refused_soon", "unit/bpel/server/test_routes.py::test_hostile_xml_is_refused")),
    Row("a quadratic blow-up", "the same", (f"{XML}::test_is_refused_soon",)),
    Row("external entities, by file, by HTTP, by parameter", "the same; a listener receives no request", (f"{XML}::test_is_refused_soon", f"{XML}::test_a_place_of_a_schema_is_never_looked_up")),
    Row("XML 200,000 deep", "rejected beyond a depth of 64, while it is parsed", (f"{XML}::test_is_refused_soon",)),
    Row(
        "huge bodies, compressed bodies, slow senders",
        "413 at the limit, which counts the bytes received; compressed bodies are not decompressed; 64 KiB and 10 s for every request head, 30 s for a body",
        (f"{BAD}::test_a_body_that_is_too_large", f"{BAD}::test_bodies_that_are_no_request", f"{BAD}::test_a_client_that_sends_too_slowly_is_hung_up_on", f"{BAD}::test_the_head_of_a_request_has_its_bounds_before_anybody_is_known", f"{BAD}::test_a_later_head_has_its_time_too", "unit/apps/server/http/test_hostile.py::test_a_request_has_one_end", f"{ACCESS}::test_who_has_no_token_is_not_told_what_is_wrong_with_a_body"),
        "the limit is 64 MiB, for ten thousand jobs at once, and not 1 MiB; without a token no body is read at all",
    ),
    Row("imports of remote schemas, extensions", "never fetched, 422", ("unit/bpel/server/test_routes.py::test_a_remote_import_is_refused", f"{BPEL}::test_nothing_is_fetched", f"{BPEL}::test_an_extension_that_must_be_understood_is_refused")),
    Row("an XPath bomb", "stopped by a step limit", (f"{BPEL}::test_a_bomb_of_xpath_is_stopped",)),
    Row(
        "conditions that take too long",
        "rejected by their limits when they are saved; tested in a separate process with 250 ms and a memory limit; the next one is answered",
        ("unit/adapters/cel/test_sandbox.py::test_a_text_that_takes_too_much_is_refused_and_the_next_is_answered",),
        "a rule is not disabled after three such errors: each error holds the failure for a person",
    ),
    Row("conditions that are too long or too deep", "4 kB, 32 levels", (f"{CEL}::test_texts_past_their_bounds_are_refused",)),
    Row("conditions with slow patterns", "RE2, and at most 256 bytes for each pattern", (f"{CEL}::test_texts_past_their_bounds_are_refused",)),
    Row("conditions with evaluation errors", "an error is a value; nothing acts on it", (f"{CEL}::test_an_error_is_a_value_and_no_general_rule_acts_on_it", "system/fuzz_rules/test_fuzz.py::test_no_fuzzed_rule_acts_on_an_error")),
    Row("a rule that completes everything", "cannot act before its replay; each such action needs an approval", ("contract/test_replayed_rules.py::test_no_rule_acts_before_it_was_replayed", "unit/services/exceptions/test_failure_actions.py::test_a_step_that_needs_approval_waits_for_one")),
    Row("a rule that triggers itself", "five actions of a rule on a job, eight in a chain; then a person", ("unit/domain/exceptions/safeguards/test_safeguards.py::test_a_loop_is_ended", "unit/services/exceptions/test_failure_actions.py::test_a_rule_that_acts_on_its_own_consequences_is_ended")),
    Row(
        "addresses of inputs and callbacks that lead to the internal network (SSRF): loopback, metadata services, decimal addresses, DNS rebinding, redirects",
        "allowed hosts only, every resolved address is checked, exactly that address is connected to, no redirect is followed; a path is read as the pilot's user",
        (f"{BAD}::test_addresses_of_tasks_that_lead_inside_are_refused", f"{CALLBACKS}::test_addresses_that_may_not_be_called_are_refused_at_once", f"{CALLBACKS}::test_a_name_that_leads_to_a_private_address_is_not_called", f"{WEB}::test_a_name_that_leads_to_a_private_address_is_not_called", f"{WEB}::test_the_very_address_that_was_checked_is_called", "unit/pilot/staging/test_sources.py::test_what_answers_mean"),
    ),
    Row(
        "path traversal, links in outputs, `/dev`, `/proc`",
        "rejected, and not followed; `/dev` and `/proc` in a task are paths in its own folder",
        (f"{BAD}::test_paths_of_tasks_that_climb_are_refused", "unit/pilot/staging/test_outputs.py::test_links_out_of_the_folder_are_not_outputs", "unit/pilot/staging/test_outputs.py::test_a_tenant_cannot_climb", "unit/pilot/staging/test_outputs.py::test_patterns_stay_in_the_folder"),
    ),
    Row("parameters and tags that would override policy", "only known ones are applied, within the rights of the tenant", (f"{BAD}::test_no_parameter_or_tag_of_a_task_says_whose_it_is", "system/tes/test_compliance.py::test_known_backend_parameters_are_obeyed_in_any_case_of_letters", "system/tes/test_compliance.py::test_strict_backend_parameters_must_be_known")),
    Row("an idempotency key reused for another body", "409, the first request stays", ("unit/apps/server/jobs/test_submit.py::test_a_key_used_for_another_body_is_refused_and_the_first_stays",)),
    Row("the same submission a thousand times at once", "one set of jobs", ("unit/apps/server/jobs/test_submit.py::test_the_same_request_many_times_at_once_makes_one_set_of_jobs",)),
    Row("unusual names", "kept unchanged and shown as text, or rejected; access never depends on a path suffix", (f"{BAD}::test_odd_names_are_kept_as_they_are", f"{BAD}::test_a_bad_job_is_refused_by_name", "system/web/test_inbox.py::test_names_and_notes_from_outside_are_only_text", f"{ACCESS}::test_unknown_addresses_are_problems_and_lead_nowhere")),
    Row("unusual numbers", "rejected, naming the field", (f"{BAD}::test_a_bad_job_is_refused_by_name", f"{BAD}::test_numbers_that_json_does_not_have")),
    Row("a million inputs, a hundred thousand tasks, a cycle", "rejected, naming the limit, or the tasks of the cycle", ("unit/apps/server/jobs/test_submit.py::test_one_job_more_than_ten_thousand_is_refused", f"{BAD}::test_too_many_of_anything_is_refused_by_its_limit", "unit/formats/flows/test_yaml_flow.py::test_what_is_wrong_is_said_with_its_place")),
    Row("invalid tokens", "401 on every route, streams included; a stream ends with its token", ("unit/apps/server/http/test_hostile.py::test_headers_that_are_no_token_open_nothing", "unit/apps/server/http/test_hostile.py::test_odd_paths_lead_past_no_check", "unit/apps/server/pilots/test_revoked.py::test_a_stream_ends_with_its_token", f"{ACCESS}::test_every_route_refuses_bad_tokens", f"{OIDC}::test_what_is_no_token_of_the_provider_is_refused")),
    Row(
        "another tenant's job in a request of one's own",
        "it does not exist there, so nothing changes and nothing is revealed; 403 where the request itself is in another's name",
        (f"{TENANTS}::test_a_foreign_end_in_ones_own_envelope_changes_nothing", f"{TENANTS}::test_a_heartbeat_that_names_foreign_claims_keeps_and_frees_nothing", f"{TENANTS}::test_a_pilot_speaks_for_itself_only"),
    ),
    Row("lower attempts, forged claims, replays", "fenced: `superseded` for that completion; of a claim that its pilot held, it is kept as evidence; of any other nothing is kept, and the audit log names the pilot, also for its checkpoints and uploads; a completion that names another tenant's job is counted (`forestay_intrusions_total`) and logged", (f"{TENANTS}::test_the_end_of_another_pilots_claim_changes_nothing", f"{TENANTS}::test_a_foreign_end_in_ones_own_envelope_changes_nothing", "unit/apps/server/pilots/test_owner_pilots.py::test_a_pilot_of_another_owner_adds_nothing_to_a_job")),
    Row(
        "jobs that print secrets, escape sequences, too much",
        "redacted in evidence, made visible in a terminal, truncated",
        ("unit/domain/exceptions/evidence/test_redaction.py::test_what_looks_like_a_secret_goes", "unit/apps/cli/test_amounts.py::test_colours_go_and_the_rest_is_shown_by_number", "unit/pilot/process/test_payload.py::test_the_log_is_capped_and_the_tail_is_the_newest"),
        "the log itself is shown unredacted to those who may read the job; secrets in base64 without a revealing name are not detected",
    ),
    Row("callbacks that hang, never end, redirect", "5 s, 64 KiB, no redirect; nothing is blocked", (f"{CALLBACKS}::test_a_callback_that_hangs_blocks_nobody", f"{CALLBACKS}::test_an_endless_answer_is_not_read_to_its_end", f"{CALLBACKS}::test_it_is_told_again_with_the_same_delivery_until_it_is_taken")),
    Row("a query language in a search field", "filters are values", (f"{BAD}::test_filters_are_values_never_a_language",)),
    Row("pickles, YAML tags", "servers, reconcilers, orchestrators and pilots contain no such reader; a payload may read a call that its own user made; tags are rejected", ("system/identity/test_readers.py::test_no_reader_that_runs_what_it_reads", "unit/formats/text/test_yaml_text.py::test_what_is_refused")),
)  # fmt: skip
"""By their numbers, from 1."""
