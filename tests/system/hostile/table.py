"""The hostile campaign: what somebody tries, what must happen, and the tests that try it.

`just hostile` runs it and writes `docs/reference/hostile.md`. What was found from outside is in it with every test that bears its number.
"""

from __future__ import annotations

from dataclasses import dataclass

KILLED, EFFECTS = "tests/unit/apps/server/pilots/test_killed_pilots.py", "tests/unit/domain/jobs/test_effects.py"
PAYLOAD, CREDENTIALS = "tests/unit/pilot/process/test_payload.py", "tests/unit/pilot/process/test_credentials.py"
FAILURES, EVENTS = "tests/unit/services/exceptions/test_failures.py", "tests/unit/apps/server/jobs/test_events.py"
HOSTILE, BODIES = "tests/unit/apps/server/http/test_hostile.py", "tests/unit/apps/server/http/test_json_bodies.py"
COMMITTED, OUTBOUND = "tests/unit/services/data/test_committed_files.py", "tests/system/identity/test_outbound.py"
SUBMIT, SESSIONS = "tests/unit/apps/server/jobs/test_submit.py", "tests/unit/apps/server/operations/test_sessions.py"
SECRETS = "tests/unit/pilot/job_secrets"
REGULAR, OPENED = "tests/unit/pilot/process/test_regular_file.py", "tests/unit/adapters/test_regular_files.py"
SPOOL, WORK = "tests/unit/pilot/claims/test_completion_queue.py", "tests/unit/pilot/process/test_work_folder.py"
IMAGES = "tests/unit/pilot/containers"
HERE, BAD = "tests/system/hostile", "tests/unit/apps/server/http/test_bad_input.py"


@dataclass(frozen=True, slots=True)
class Try:
    """One of them."""

    what: str
    expected: str
    tests: tuple[str, ...]
    finding: str = ""


TRIES: dict[str, tuple[Try, ...]] = {
    "Payloads": (
        Try("a payload fills the disk on which its pilot keeps its notes", "it fails with its own exit code, its cause is `disk`, and the next job runs there", (f"{HERE}/test_payloads.py::test_a_payload_that_fills_the_disk_fails_and_the_next_job_runs",)),
        Try("a payload traces its pilot, or reads its memory, environment and open files", "refused; it may trace what it started itself", (f"{HERE}/test_payloads.py::test_a_payload_cannot_look_into_its_pilot",)),
        Try("a payload reads the token of its pilot", "the token is in no file, descriptor or variable that it can reach", (f"{CREDENTIALS}::test_a_payload_cannot_read_the_token_that_its_pilot_was_handed", f"{CREDENTIALS}::test_the_standard_input_is_closed_to_payloads_after_the_token_was_read"), "F-C2"),
        Try("a job of one owner wants the secret of another: by a reference, by paths that leave the folder, by command lines, descriptors and files", "refused or not found; the value is in no byte of the store, the logs and the pilots' folders", (f"{HERE}/test_secrets.py::test_the_secret_of_an_owner_is_in_nothing_that_others_see", f"{SECRETS}/test_job_secrets.py::test_a_job_of_another_owner_finds_no_source_to_read", f"{SECRETS}/test_job_secrets.py::test_nothing_of_a_secret_is_on_disk_or_a_command_line_while_a_job_runs", f"{SECRETS}/test_checked_files.py::test_nothing_leads_out_of_the_folder")),
        Try("a payload kills its pilot, and the next one", "held after the third, and none of its neighbours is", (f"{KILLED}::test_a_job_that_kills_its_pilots_is_held_after_the_third", f"{KILLED}::test_the_neighbours_of_a_job_that_kills_pilots_are_not_blamed"), "F-B5"),
        Try("a payload, or another job, puts a pipe, an endless device or a link where its pilot or a server reads", "only a file is opened: nothing waits, and nothing of another file is shown", (f"{REGULAR}::test_only_a_file_is_opened", f"{REGULAR}::test_the_report_of_a_task_is_read_from_a_file_only", f"{REGULAR}::test_a_report_that_is_nested_without_end_is_none", f"{REGULAR}::test_an_output_is_hashed_from_a_file_only", f"{REGULAR}::test_a_manifest_is_read_from_a_file_only", f"{REGULAR}::test_an_input_that_is_no_file_is_missing", f"{OPENED}::test_a_storage_element_has_files_only")),
        Try("a pilot's output is a link, a pipe or another name of a secret of the site agent", "nothing of it is shown, and the agent goes on", (f"{OPENED}::test_the_output_of_a_pilot_is_a_file", f"{OPENED}::test_another_name_of_a_secret_is_no_output_of_a_pilot", f"{OPENED}::test_what_cannot_be_removed_keeps_nothing_else_from_being_removed")),
        Try("a payload writes into the spool of its pilot, which then dies", "what is no completion is set aside, and every completion beside it is sent", (f"{SPOOL}::test_what_is_no_completion_is_set_aside_and_the_next_one_is_taken", f"{SPOOL}::test_an_end_beside_something_else_in_one_file_is_taken", f"{WORK}::test_what_is_no_completion_keeps_none_beside_it_from_being_taken_over", f"{WORK}::test_a_spool_that_is_a_link_is_not_taken_over")),
        Try("an image of a few megabytes that unpacks to gigabytes", "refused before it is read, and nothing of it is left", (f"{IMAGES}/test_oci_layout.py::test_a_layer_that_unpacks_to_gigabytes_is_refused_before_it_is_read", f"{IMAGES}/test_oci_layout.py::test_a_stop_ends_the_unpacking_of_one_large_file", f"{IMAGES}/test_oci_layout.py::test_empty_files_take_room_too", f"{IMAGES}/test_image_store.py::test_nothing_is_left_of_an_image_that_is_too_large")),
        Try("jobs that state no cores, to pass a quota of cores", "each counts as one core", ("tests/unit/domain/scheduling/test_quota.py::test_a_job_that_states_no_cores_uses_one",)),
        Try("a fork bomb", "it ends with its job, and its pilot goes on", ("tests/system/faults/test_poison.py::test_a_fork_bomb_ends_with_its_job_and_its_pilot_goes_on",)),
        Try("a payload leaves its session and its environment behind and runs on", "it is gone when the end is told", (f"{PAYLOAD}::test_a_process_without_session_and_environment_is_gone_when_the_end_is_told",), "F-B2"),
        Try("a job with external effects loses its pilot", "it waits for a person", (f"{KILLED}::test_a_job_with_external_effects_is_not_run_again_after_its_pilot_was_killed",), "F-B2"),
        Try("hundreds of jobs of one owner fail at once", "others lose at most a tenth of the slots", ("tests/unit/apps/server/scheduling/test_hosts.py::test_a_crowd_that_fails_costs_others_less_than_a_tenth",), "F-B3"),
    ),
    "Requests": (
        Try("a body that unpacks to a gigabyte", "refused unread", (f"{HERE}/test_requests.py::test_a_body_that_unpacks_to_a_gigabyte_is_not_unpacked",)),
        Try("the time of a refusal, to guess a token character by character", "it does not depend on what is wrong", (f"{HERE}/test_requests.py::test_the_time_of_a_refusal_does_not_tell_how_much_of_a_token_is_right",)),
        Try("bodies of empty lists, very deep ones, very large ones", "refused before they are parsed; others have their turn meanwhile", (f"{BODIES}::test_a_body_of_empty_lists_is_refused_unparsed", f"{BODIES}::test_the_depth_is_bounded", f"{BODIES}::test_others_have_their_turn_while_a_large_body_is_parsed"), "F-B4"),
        Try("heads and bodies that never end", "hung up on", (f"{BAD}::test_a_client_that_sends_too_slowly_is_hung_up_on", f"{BAD}::test_the_head_of_a_request_has_its_bounds_before_anybody_is_known")),
        Try("a name that resolves to an address outside when it is checked and to one inside when it is called", "it is looked up once, and that address is called", (f"{OUTBOUND}::test_a_name_is_looked_up_once_and_that_address_is_called", f"{OUTBOUND}::test_only_listed_hosts_are_called_and_no_redirect_is_followed")),
        Try("a token in an address", "opens nothing, and no route takes one", (f"{HOSTILE}::test_a_token_in_an_address_opens_nothing", f"{HOSTILE}::test_no_route_takes_a_secret_in_its_address"), "F-C7"),
        Try("a token or a session that was taken back", "refused at every server", (f"{SESSIONS}::test_log_out_ends_the_session_at_every_server", f"{SESSIONS}::test_the_tokens_of_a_person_can_be_taken_back"), "F-C4"),
    ),
    "Tenants": (
        Try("a pilot commits a manifest in the folder of another tenant", "refused, and nothing is read there", ("tests/unit/apps/server/data/test_data.py::test_nobody_commits_the_folder_of_another_tenant_on_a_shared_file_system", f"{COMMITTED}::test_a_link_to_another_tenants_file_shows_nothing", f"{COMMITTED}::test_the_result_of_another_tenants_job_is_not_read"), "F-C1"),
        Try("a stream of events from the beginning of time", "an hour at most, and no document of another tenant is read", (f"{EVENTS}::test_a_stream_reads_no_job_of_another_tenant", f"{EVENTS}::test_a_cursor_goes_back_an_hour_at_most"), "F-C3"),
        Try("somebody else's idempotency key", "it is its caller's own", (f"{SUBMIT}::test_a_key_is_its_callers_own",), "F-C8"),
        Try("the id of an event that another sender is going to send", "it is its sender's own: the other event arrives", ("tests/contract/test_external_events.py::test_an_id_is_its_senders_own",)),
        Try("an output outside of the job's folder", "refused at submission", (f"{SUBMIT}::test_an_output_outside_of_the_jobs_folder_is_refused",), "F-C6"),
        Try("an end that contradicts the recorded one", "told as superseded", ("tests/unit/apps/server/jobs/test_steering.py::test_who_contradicts_a_recorded_end_is_told_so",), "F-C9"),
    ),
    "Rules": (
        Try("two rules that answer each other's acts", "each acts five times at most, then a person is asked", (f"{HERE}/test_rules.py::test_two_rules_that_take_turns_stop_and_ask",)),
        Try("one rule that acts on a job again and again", "five times", (f"{FAILURES}::test_a_rule_acts_five_times_on_a_job_and_not_a_sixth_time",), "F-B10"),
        Try("a rule is promoted over 500 open failures", "it is tried on one; none is lost or answered twice", (f"{HERE}/test_rules.py::test_a_rule_that_is_promoted_over_five_hundred_open_failures_is_tried_on_one",)),
        Try("a rule whose condition errs", "nothing acts; the incident is held and names the error", (f"{HERE}/test_rules.py::test_a_rule_whose_condition_errs_acts_on_nothing_and_says_so",)),
    ),
    "Time and versions": (
        Try("no reconciler for ten leases while pilots fall silent", "afterwards nothing is released early, what was lost runs again, and what lived is left alone", (f"{HERE}/test_reconciler_away.py::test_a_reconciler_that_was_away_releases_what_is_lost_and_nothing_else",)),
        Try("a pilot whose clock is off", "it gets no job", ("tests/system/faults/test_lying_hosts.py::test_no_job_is_taken_from_a_host_whose_clock_is_off",)),
        Try("a host that sleeps past its lease", "it stops itself before it does anything", ("tests/system/faults/test_frozen_hosts.py::test_a_host_that_slept_past_its_lease_stops_itself_before_it_does_anything",)),
        Try("two releases side by side, forward and back", "no job is lost or run twice", ("tests/system/upgrade/test_rolling.py::test_forward_beside_each_other_and_back",)),
    ),
}  # fmt: skip
