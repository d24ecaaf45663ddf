"""What is asked for against bad people and bad input, row by row: what is done, the tests that show it, and what is not shown or not done.

The page `docs/explanation/security.md` is written from it (`uv run python scripts/security_page.py`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that is asked for."""

    asked: str
    done: str
    tests: tuple[str, ...]
    """`file::name`, below `tests/`."""
    missing: str = ""
    """What is asked for and not done, or done and not shown; empty: nothing."""

    @property
    def shown(self) -> str:
        if not self.tests:
            return "no"
        return "in part" if self.missing else "yes"


ACCESS, BAD, TENANTS = "server/test_access.py", "server/test_bad_input.py", "server/test_tenants.py"
CALLBACKS, OIDC, WEB = "server/test_callbacks.py", "identity/test_oidc.py", "pilot/test_staging_web.py"
XML, BPEL, CEL = "jsdl/test_hostile_xml.py", "bpel/test_reading.py", "adapters/cel/test_conditions.py"
ENROL, CLOSED, SECRETS = "server/test_enrolments.py", "openapi/test_closed.py", "identity/test_secrets.py"
SEALED, TLS, SESSIONS = "identity/test_temporal_sealed.py", "identity/test_tls.py", "server/test_sessions.py"
PEERS, APPROVALS, CHAIN = "server/test_peers.py", "server/test_approvals.py", "domain/faults/test_audit.py"

EXPECTED: tuple[Row, ...] = (
    Row(
        "no route without a token, of whatever method; deny by default",
        "a list of all routes is asked with every bad token; so is every operation of the description, with real bodies; each route names the role that it needs, and every role is tried on every route",
        (f"{ACCESS}::test_every_route_refuses_bad_tokens", f"{CLOSED}::test_no_route_is_open", f"{ACCESS}::test_every_route_checks_a_role", f"{ACCESS}::test_every_route_refuses_the_wrong_role"),
    ),
    Row(
        "tenants are apart",
        "what is another tenant's does not exist, in lists, streams, claims and beats",
        (f"{CLOSED}::test_a_stranger_of_another_tenant_learns_nothing", f"{TENANTS}::test_a_foreign_job_is_not_there", "contracts/test_search.py::test_tenants_are_separate"),
    ),
    Row(
        "OAuth2 and OpenID Connect, `aud` for each domain",
        "[single sign-on](../how-to/single-sign-on.md): a pinned list of algorithms, keys of the provider alone, declared tenants and roles",
        (f"{OIDC}::test_what_is_no_token_of_the_provider_is_refused", f"{OIDC}::test_every_route_refuses_a_token_of_another_issuer"),
    ),
    Row(
        "keys are replaced",
        "the provider's are read anew; our own are several for a while",
        (f"{OIDC}::test_keys_are_rotated_and_a_key_that_is_gone_is_good_no_more", "identity/test_key_rotation.py::test_two_keys_are_good_while_one_takes_the_place_of_the_other"),
    ),
    Row(
        "between domains never the user's token",
        "a domain signs a token of its own, for one other domain, tenant and interface; peers are registered by an administrator",
        (f"{PEERS}::test_a_token_is_good_at_one_domain_for_one_tenant_and_one_interface", f"{PEERS}::test_administrators_of_the_house_keep_the_register"),
        "the exchange of RFC 8693 itself: the peers trust each other's keys, and no third party is asked",
    ),
    Row(
        "one outbound client: allow-list, addresses pinned, no redirects",
        "callbacks, webhooks, peers, the provider of identities, lineage and storage elements go through one client; task servers and staging have the same in theirs; a list of every place that makes a connection ([decision 94](../decisions/0094-one-way-out.md))",
        ("identity/test_outbound.py::test_there_is_no_other_way_out", "identity/test_outbound.py::test_only_listed_hosts_are_called_and_no_redirect_is_followed", "identity/test_outbound.py::test_documents_of_a_provider_lead_to_no_other_host", "identity/test_outbound.py::test_a_peer_that_drips_is_not_waited_for", "identity/test_outbound.py::test_a_name_is_looked_up_once_and_that_address_is_called", f"{WEB}::test_the_very_address_that_was_checked_is_called", f"{CALLBACKS}::test_a_host_that_is_no_longer_allowed_is_not_called"),
        "an egress proxy is not spoken to; apprise and OpenTelemetry make their own connections, to addresses of the settings",
    ),
    Row(
        "mutual TLS",
        "[a server may hear only those with a certificate](../how-to/tls.md); people's clients, pilots, site agents and peers show theirs, from files that only their owners can read; withdrawn ones are not heard",
        (f"{TLS}::test_a_persons_client_shows_its_certificate", f"{TLS}::test_site_agents_and_peers_show_theirs", f"{TLS}::test_a_pilot_does_not_show_a_key_that_others_can_read", f"{TLS}::test_only_who_shows_a_certificate_of_the_authority_is_heard", f"{TLS}::test_a_pilot_shows_its_certificate_and_runs_a_job", f"{TLS}::test_a_renewed_certificate_is_taken_without_a_restart", f"{TLS}::test_who_shows_a_withdrawn_certificate_is_not_heard"),
    ),
    Row(
        "one credential a pilot, short, for itself alone",
        "15 minutes at most, by a secret that is good once; taken back at once ([decision 95](../decisions/0095-one-pilot-is-turned-away.md))",
        ("server/test_revoked.py::test_a_revoked_pilot_is_refused_at_every_server_and_its_jobs_are_left_to_its_lease", f"{ENROL}::test_a_secret_is_traded_for_a_pilots_token", f"{TENANTS}::test_a_pilot_speaks_for_itself_only", f"{ACCESS}::test_a_token_renews_only_for_a_pilot_that_is_registered"),
        "it is not bound to a certificate or a key of the pilot's",
    ),
    Row(
        "payloads see neither the pilot's token nor its environment",
        "own environment, the pilot cannot be looked into; one tenant a pilot",
        ("pilot/test_isolation.py::test_no_payload_sees_the_token", "pilot/test_payload.py::test_a_payload_sees_neither_the_token_nor_the_pilots_environment", "pilot/test_payload.py::test_a_pilot_is_not_dumpable", f"{TENANTS}::test_a_pilot_gets_jobs_of_its_own_tenant_only"),
        "without another user or a container a payload runs as the pilot's user, and a network of its own is left to the container",
    ),
    Row(
        "secrets by reference, files for their owner alone",
        "settings name a file or a variable, and are refused when they hold the secret itself, those that sign addresses of S3 too; files of tokens, signing keys and certificates that others can read are refused, others are told of by `holdfast doctor`",
        ("live/test_signed_addresses.py::test_credentials_that_are_missing_are_told_without_them", f"{SECRETS}::test_a_setting_that_is_a_secret_is_refused", f"{SECRETS}::test_what_goes_wrong_is_told_without_the_secret", "apps/test_doctor.py::test_secrets_are_there_and_for_nobody_else", "cli/test_settings.py::test_a_token_file_that_others_can_read_is_refused"),
    ),
    Row(
        "rules: a second person, replayed first, a stop for all",
        "counting as done, release and others' jobs need somebody else's agreement; no rule acts before it was replayed; one stop holds everywhere",
        (f"{APPROVALS}::test_nobody_counts_a_job_as_done_alone_and_another_person_lets_it", "contracts/test_replayed_rules.py::test_no_rule_acts_before_it_was_replayed", "server/test_brakes.py::test_a_stop_holds_on_every_server_until_someone_lets_go"),
        "rules are not signed by their authors; the audit log says who changed what",
    ),
    Row(
        "audit: append-only, a chain of hashes, one changed byte is found",
        "checked by who reads it, from outside too; where it ends is [told every hour](../how-to/notices.md#where-the-audit-log-ends) to whoever keeps that elsewhere",
        (f"{CHAIN}::test_one_changed_byte_of_what_is_shown_is_found", f"{CHAIN}::test_what_was_taken_out_is_missed", "server/test_brakes.py::test_the_log_is_a_chain_that_can_be_checked_from_outside", "server/test_notices.py::test_where_the_audit_log_ends_is_told_every_hour"),
    ),
    Row(
        "Temporal: mutual TLS, payloads and texts of failures sealed, no secret in search attributes",
        "sealed by us before it leaves the process",
        (f"{SEALED}::test_temporal_by_mutual_tls_keeps_nothing_that_it_could_read", "identity/test_codec.py::test_a_changed_byte_is_seen"),
        "Temporal's own authorizer is its operator's",
    ),
    Row(
        "OpenSearch by servers alone",
        "pilots and clients have no address of it; its password shows nowhere; tenants are told apart by us",
        ("adapters/test_opensearch_hosts.py::test_a_password_shows_nowhere", "contracts/test_search.py::test_tenants_are_separate"),
        "OpenSearch's own security plugin is its operator's; the tests run without it",
    ),
    Row(
        "pages: no inline script, strict cookie, a word against forgery, no exemption by the end of a path",
        "as asked",
        ("web/test_inbox.py::test_the_policy_lets_nothing_in_that_is_written_into_the_page", f"{SESSIONS}::test_an_act_needs_the_pages_own_word", f"{SESSIONS}::test_another_site_cannot_make_a_browser_ask", f"{ACCESS}::test_unknown_addresses_are_problems_and_lead_nowhere"),
    ),
    Row(
        "supply chain",
        "digests of all that is pinned, audits that fail closed, a list of parts",
        ("deploy/test_supply_chain.py::test_an_audit_of_python_packages_fails_closed", "deploy/test_supply_chain.py::test_every_part_is_listed_with_its_digest"),
        "no provenance by a builder (SLSA), and pilots are not signed",
    ),
)  # fmt: skip

INPUTS: tuple[Row, ...] = (
    Row("XML with a DTD, a billion laughs", "any DTD is refused within 50 ms", (f"{XML}::test_is_refused_soon", "server/test_bpel.py::test_hostile_xml_is_refused")),
    Row("a quadratic blow-up", "the same", (f"{XML}::test_is_refused_soon",)),
    Row("external entities, by file, by HTTP, by parameter", "the same; a listener hears nothing", (f"{XML}::test_is_refused_soon", f"{XML}::test_a_place_of_a_schema_is_never_looked_up")),
    Row("XML 200,000 deep", "refused past a depth of 64, while it is read", (f"{XML}::test_is_refused_soon",)),
    Row(
        "huge bodies, packed bodies, slow senders",
        "413 at the bound, which counts what really comes; packed bodies are not unpacked; 64 KiB and 10 s for every head, 30 s for a body",
        (f"{BAD}::test_a_body_that_is_too_large", f"{BAD}::test_bodies_that_are_no_request", f"{BAD}::test_a_client_that_sends_too_slowly_is_hung_up_on", f"{BAD}::test_the_head_of_a_request_has_its_bounds_before_anybody_is_known", f"{BAD}::test_a_later_head_has_its_time_too", "server/test_hostile.py::test_a_request_has_one_end", f"{ACCESS}::test_who_has_no_token_is_not_told_what_is_wrong_with_a_body"),
        "the bound is 64 MiB, for ten thousand jobs at once, and not 1 MiB; who shows no token has no body read at all",
    ),
    Row("imports of remote schemas, extensions", "never fetched, 422", ("server/test_bpel.py::test_a_remote_import_is_refused", f"{BPEL}::test_nothing_is_fetched", f"{BPEL}::test_an_extension_that_must_be_understood_is_refused")),
    Row("a bomb of XPath", "stopped by a budget of steps", (f"{BPEL}::test_a_bomb_of_xpath_is_stopped",)),
    Row(
        "conditions that take too long",
        "refused by their bounds, when they are saved; tried in a process of their own with 250 ms and a bound on memory; the next is answered",
        ("adapters/cel/test_sandbox.py::test_a_text_that_takes_too_much_is_refused_and_the_next_is_answered",),
        "a rule is not switched off after three such: an error holds the matter for a person each time",
    ),
    Row("conditions that are too long or too deep", "4 kB, 32 deep", (f"{CEL}::test_texts_past_their_bounds_are_refused",)),
    Row("conditions with slow patterns", "RE2, and at most 256 bytes of pattern", (f"{CEL}::test_texts_past_their_bounds_are_refused",)),
    Row("conditions that err", "an error is a value; nothing acts on it", (f"{CEL}::test_an_error_is_a_value_and_no_general_rule_acts_on_it", "fuzz_rules/test_fuzz.py::test_no_fuzzed_rule_acts_on_an_error")),
    Row("a rule that completes everything", "cannot act before its replay; each such act needs a second person", ("contracts/test_replayed_rules.py::test_no_rule_acts_before_it_was_replayed", "services/test_braked_faults.py::test_a_step_that_needs_a_second_person_waits_for_one")),
    Row("a rule that raises itself", "five acts of a rule on a job, eight in a chain; then a person", ("domain/faults/test_brakes.py::test_a_loop_is_ended", "services/test_braked_faults.py::test_a_rule_that_acts_on_its_own_consequences_is_ended")),
    Row(
        "addresses of inputs and callbacks that lead inside: loopback, metadata services, decimal numbers, rebinding, redirects",
        "allowed hosts only, every resolved address looked at, that very address connected to, no redirect followed; a path is read as the pilot's user",
        (f"{BAD}::test_addresses_of_tasks_that_lead_inside_are_refused", f"{CALLBACKS}::test_addresses_that_may_not_be_called_are_refused_at_once", f"{CALLBACKS}::test_a_name_that_leads_to_a_private_address_is_not_called", f"{WEB}::test_a_name_that_leads_to_a_private_address_is_not_called", f"{WEB}::test_the_very_address_that_was_checked_is_called", "pilot/test_sources.py::test_what_answers_mean"),
    ),
    Row(
        "paths that climb, links in outputs, `/dev`, `/proc`",
        "refused, and not followed; `/dev` and `/proc` in a task are places in its own folder",
        (f"{BAD}::test_paths_of_tasks_that_climb_are_refused", "pilot/test_outputs.py::test_links_out_of_the_folder_are_not_outputs", "pilot/test_outputs.py::test_a_tenant_cannot_climb", "pilot/test_outputs.py::test_patterns_stay_in_the_folder"),
    ),
    Row("parameters and tags that would override policy", "only known ones are obeyed, within what the tenant may", (f"{BAD}::test_no_parameter_or_tag_of_a_task_says_whose_it_is", "tes/test_compliance.py::test_known_backend_parameters_are_obeyed_in_any_case_of_letters", "tes/test_compliance.py::test_strict_backend_parameters_must_be_known")),
    Row("a key used for another body", "409, the first stays", ("server/test_submit.py::test_a_key_used_for_another_body_is_refused_and_the_first_stays",)),
    Row("the same submission a thousand times at once", "one set of jobs", ("server/test_submit.py::test_the_same_request_many_times_at_once_makes_one_set_of_jobs",)),
    Row("odd names", "kept as they are and shown as text, or refused; who is let in never depends on how a path ends", (f"{BAD}::test_odd_names_are_kept_as_they_are", f"{BAD}::test_a_bad_job_is_refused_by_name", "web/test_inbox.py::test_names_and_notes_from_outside_are_only_text", f"{ACCESS}::test_unknown_addresses_are_problems_and_lead_nowhere")),
    Row("odd numbers", "refused by name", (f"{BAD}::test_a_bad_job_is_refused_by_name", f"{BAD}::test_numbers_that_json_does_not_have")),
    Row("a million inputs, a hundred thousand tasks, a cycle", "limits are named, and the way round the cycle", ("server/test_submit.py::test_one_job_more_than_ten_thousand_is_refused", f"{BAD}::test_too_many_of_anything_is_refused_by_its_limit", "formats/test_yaml_flow.py::test_what_is_wrong_is_said_with_its_place")),
    Row("tokens that are none", "401 on every route, streams included; a stream ends with its token", ("server/test_hostile.py::test_headers_that_are_no_token_open_nothing", "server/test_hostile.py::test_odd_paths_lead_past_no_check", "server/test_revoked.py::test_a_stream_ends_with_its_token", f"{ACCESS}::test_every_route_refuses_bad_tokens", f"{OIDC}::test_what_is_no_token_of_the_provider_is_refused")),
    Row(
        "another tenant's job in one's own envelope",
        "it does not exist there, so nothing changes and nothing is told; 403 where the envelope itself is another's",
        (f"{TENANTS}::test_a_foreign_end_in_ones_own_envelope_changes_nothing", f"{TENANTS}::test_a_beat_that_names_foreign_claims_keeps_and_frees_nothing", f"{TENANTS}::test_a_pilot_speaks_for_itself_only"),
    ),
    Row("lower attempts, forged claims, replays", "fenced: `superseded` for that one end, kept as evidence at most; one that names another tenant's job is counted (`holdfast_intrusions_total`) and logged", (f"{TENANTS}::test_the_end_of_another_pilots_claim_changes_nothing", f"{TENANTS}::test_a_foreign_end_in_ones_own_envelope_changes_nothing")),
    Row(
        "jobs that print secrets, escapes, too much",
        "redacted in what is kept as evidence, made visible in a terminal, capped",
        ("domain/faults/test_redaction.py::test_what_looks_like_a_secret_goes", "cli/test_amounts.py::test_colours_go_and_the_rest_is_shown_by_number", "pilot/test_payload.py::test_the_log_is_capped_and_the_tail_is_the_newest"),
        "the log itself is shown to who may read the job as it was printed; secrets in base64 without a telling name are not seen",
    ),
    Row("callbacks that hang, never end, lead on", "5 s, 64 KiB, no redirect; nobody waits", (f"{CALLBACKS}::test_a_callback_that_hangs_blocks_nobody", f"{CALLBACKS}::test_an_endless_answer_is_not_read_to_its_end", f"{CALLBACKS}::test_it_is_told_again_with_the_same_delivery_until_it_is_taken")),
    Row("a language in a search box", "filters are values", (f"{BAD}::test_filters_are_values_never_a_language",)),
    Row("pickles, tags of YAML", "no such reader is in servers, keepers, workers and pilots; a payload may read a call that its own user made; tags are refused", ("identity/test_readers.py::test_no_reader_that_runs_what_it_reads", "formats/test_yaml_text.py::test_what_is_refused")),
)  # fmt: skip
"""By their numbers, from 1."""
