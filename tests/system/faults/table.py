"""The fault table: what may break, what shows that it does no harm, and what is not shown.

`just faults` runs it. A row names tests (`file::name`) and campaigns (by the name in `CAMPAIGNS`); what a row asks for and nothing here injects is said under `missing`.
"""

from __future__ import annotations

from dataclasses import dataclass

CAMPAIGNS: dict[str, tuple[str, ...]] = {
    "chaos": ("tests.system.chaos", "small"),
    "runs": ("tests.system.chaos.runs", "small", "--seed", "1"),
    "playbooks": (
        "tests.system.chaos.playbooks",
        "--seed",
        "1",
        "--times",
        "1",
        "--actions",
        "remove-run,compensate,resubmit",
    ),
    "linearizability": ("tests.system.linearizability", "5000"),
    "split": ("tests.system.linearizability", "5000", "--stores", "split"),
    "simulation": ("tests.system.simulation", "--schedules", "500", "--jobs", "2"),
}
"""Modules and their words, at the small size."""
FULL: dict[str, tuple[str, ...]] = {
    "chaos": ("tests.system.chaos", "release"),
    "runs": ("tests.system.chaos.runs", "--seed", "1"),
    "playbooks": ("tests.system.chaos.playbooks", "--seed", "1", "--times", "5"),
    "linearizability": ("tests.system.linearizability", "1000000"),
    "split": ("tests.system.linearizability", "100000", "--stores", "split", "--splits", "50"),
    "simulation": ("tests.system.simulation", "--schedules", "100000", "--jobs", "2"),
}
"""The same at the size of a release: 100,000 jobs in the first."""


@dataclass(frozen=True, slots=True)
class Row:
    """One fault."""

    number: int
    fault: str
    tests: tuple[str, ...] = ()
    campaigns: tuple[str, ...] = ()
    missing: str = ""
    """What is asked for and not shown; empty: nothing."""

    @property
    def shown(self) -> str:
        if not self.tests and not self.campaigns:
            return "no"
        return "in part" if self.missing else "yes"


LIFE, OUTPUTS, STEERING = (
    "tests/unit/pilot/test_life.py",
    "tests/unit/pilot/staging/test_outputs.py",
    "tests/unit/apps/server/jobs/test_steering.py",
)
KILLS, RECOVERY = "tests/live/test_slurm_kills.py", "tests/live/test_recovery.py"
SERVERS, JOBS = "tests/system/papers/test_p4_several_servers.py", "tests/system/papers/test_p4_job_documents.py"
INJECTED = "tests/system/faults/test_injected.py"
LOST = "tests/system/faults/test_lost_servers.py"
POISON = "tests/system/faults/test_poison.py"
FROZEN, LYING = "tests/system/faults/test_frozen_hosts.py", "tests/system/faults/test_lying_hosts.py"
PEERS = "tests/live/test_peer_domains.py"
OWN_OPENSEARCH, OWN_POSTGRES = "tests/system/faults/test_own_opensearch.py", "tests/system/faults/test_own_postgres.py"
MONITORING, EXECUTION = "tests/system/papers/test_p4_monitoring.py", "tests/system/matrix/test_execution_failures.py"

TABLE: tuple[Row, ...] = (
    Row(1, "kill -9 of a pilot", (f"{SERVERS}::test_a_killed_pilots_job_runs_again_within_seconds",), ("chaos",)),
    Row(
        2,
        "kill -9 of a payload alone",
        (f"{EXECUTION}::test_a_kill_by_the_kernel_for_memory_and_one_by_somebody_are_two_things",),
    ),
    Row(3, "kill -9 of the guard of payloads", (f"{LIFE}::test_a_killed_guard_ends_its_payloads_and_the_pilot_goes_on",)),
    Row(
        4,
        "kill -9 of a server",
        (f"{SERVERS}::test_work_goes_on_within_seconds_of_a_servers_crash",),
        ("chaos",),
    ),
    Row(
        5,
        "kill -9 of a worker of Temporal's",
        ("tests/live/test_run_recovery.py::test_an_orchestrator_that_is_killed_loses_nothing",),
        ("runs",),
    ),
    Row(6, "kill -9 of Temporal", campaigns=("runs",)),
    Row(7, "kill -9 of PostgreSQL", (f"{OWN_POSTGRES}::test_postgres_is_killed_under_runs",), ("linearizability",)),
    Row(8, "kill -9 of the only OpenSearch node", (f"{OWN_OPENSEARCH}::test_the_only_node_is_killed",)),
    Row(9, "kill -9 of a primary, three nodes", campaigns=("chaos", "linearizability")),
    Row(
        10,
        "kill -9 of who answers TES, WES or the pages",
        (
            f"{LOST}::test_who_answers_tes_wes_and_the_pages_is_killed_and_nothing_is_made_twice",
            "tests/system/tes/test_repeats.py::test_py_tes_posts_again_after_a_lost_answer_and_one_task_is_made",
            "tests/system/proxy/test_proxy.py::test_a_creation_whose_answer_is_lost_is_found_again_and_not_sent_twice",
        ),
    ),
    Row(11, "kill -9 of a reconciler; two at once", campaigns=("chaos", "simulation")),
    Row(12, "kill -9 in the middle of a playbook", campaigns=("playbooks",)),
    Row(
        13,
        "kill -9 of slurmctld and slurmd",
        (f"{KILLS}::test_slurmctld_is_killed_and_comes_back", f"{KILLS}::test_a_slurmd_is_killed_and_comes_back"),
    ),
    Row(
        14,
        "death between commit and publication",
        ("tests/system/tes/test_lost_pilots.py::test_the_outputs_of_a_killed_attempt_are_never_seen",),
        ("chaos", "simulation"),
    ),
    Row(15, "death at every step of claim, heartbeat and end", campaigns=("simulation", "runs")),
    Row(
        16,
        "SIGSTOP of a pilot for longer than its lease",
        (f"{RECOVERY}::test_a_silent_pilots_job_is_run_again_and_its_own_late_end_does_not_count",),
        ("chaos",),
    ),
    Row(
        17,
        "pilot, guard and payload frozen together",
        (f"{FROZEN}::test_a_host_that_is_frozen_past_its_lease_overlaps_and_one_commit_counts",),
        ("chaos",),
    ),
    Row(18, "SIGSTOP of the store", campaigns=("chaos",)),
    Row(19, "partition between pilot and server", (f"{EXECUTION}::test_a_way_to_the_server_that_is_cut_costs_nothing",), ("chaos",)),
    Row(20, "answers lost, requests carried out", (f"{MONITORING}::test_a_claim_whose_answer_was_lost_is_recovered",), ("chaos", "simulation")),
    Row(21, "partition between server and store", campaigns=("chaos",)),
    Row(
        22,
        "store split two and one, a stale primary",
        ("tests/live/test_servers.py::test_opensearch_without_a_manager_takes_no_write",),
        ("simulation", "linearizability", "split"),
    ),
    Row(23, "partition between orchestrator and Temporal", (f"{INJECTED}::test_an_orchestrator_that_is_cut_off_from_temporal_goes_on",)),
    Row(
        24,
        "partition between domains",
        (
            f"{PEERS}::test_lines_that_are_cut_for_a_minute_lose_nothing_and_start_nothing_twice",
            f"{PEERS}::test_the_work_of_a_domain_that_is_gone_for_good_goes_elsewhere",
        ),
    ),
    Row(
        25,
        "carried out, then a timeout, on every call of the store",
        ("tests/system/linearizability/test_recorder.py::test_the_checked_writer_passes_over_an_unclear_store",),
        ("simulation", "chaos"),
    ),
    Row(
        26,
        "resets, slow ways, 503",
        (
            "tests/unit/apps/server/http/test_bad_input.py::test_a_client_that_sends_too_slowly_is_hung_up_on",
            "tests/system/faults/test_spoilt_ways.py::test_a_spoilt_way_to_the_store_makes_no_storm",
        ),
        ("chaos",),
    ),
    Row(
        27,
        "disk full: OpenSearch",
        (
            f"{OWN_OPENSEARCH}::test_the_disk_of_opensearch_is_full",
            f"{OWN_OPENSEARCH}::test_the_disk_of_opensearch_is_full_to_the_last_byte",
        ),
    ),
    Row(
        28,
        "disk full: PostgreSQL, Temporal",
        (f"{OWN_POSTGRES}::test_the_disk_of_postgres_is_full", f"{OWN_POSTGRES}::test_the_disk_of_temporal_is_full"),
    ),
    Row(
        29,
        "disk full: scratch and outputs of a pilot",
        (f"{EXECUTION}::test_a_disk_is_full_or_cannot_be_written", f"{OUTPUTS}::test_a_full_disk_leaves_nothing_half_done"),
    ),
    Row(
        30,
        "an error when the manifest is written",
        (
            f"{LYING}::test_a_disk_that_refuses_the_manifest_or_an_output_commits_nothing",
            f"{OUTPUTS}::test_a_full_disk_leaves_nothing_half_done",
        ),
    ),
    Row(
        31,
        "clocks that are off",
        (
            f"{LYING}::test_no_job_is_taken_from_a_host_whose_clock_is_off",
            "tests/unit/apps/server/jobs/test_events.py::test_a_server_whose_clock_is_ahead_hides_nothing",
        ),
        ("simulation",),
        missing="waits that run at another rate: only what a process reads of its clocks is changed",
    ),
    Row(
        32,
        "a host that sleeps and wakes",
        (
            f"{FROZEN}::test_a_host_that_slept_past_its_lease_stops_itself_before_it_does_anything",
            f"{FROZEN}::test_a_short_sleep_of_the_clocks_is_noticed_before_the_next_heartbeat",
        ),
        missing="a machine that really sleeps: it is frozen, and its CLOCK_BOOTTIME leaps by ten minutes",
    ),
    Row(33, "a slow node", (f"{KILLS}::test_a_slow_node_is_not_taken_for_dead",)),
    Row(
        34,
        "a black hole",
        ("tests/live/test_hosts.py::test_a_black_hole_eats_five_jobs_and_is_closed_while_good_hosts_go_on",),
    ),
    Row(35, "exit code 0 and no output", (f"{OUTPUTS}::test_a_missing_output_is_a_failure_and_commits_nothing",)),
    Row(
        36,
        "a job that kills its pilots",
        (
            f"{POISON}::test_a_fork_bomb_ends_with_its_job_and_its_pilot_goes_on",
            f"{EXECUTION}::test_a_job_whose_hosts_die_again_and_again_is_held_with_the_cause",
        ),
        missing="a pilot that the kernel kills for memory, with other tenants beside it; a job is set aside at the eighth pilot that is lost, not at the third (decision 92)",
    ),
    Row(37, "a document that nobody can read", (f"{INJECTED}::test_a_document_that_nobody_can_read_stops_nobody",)),
    Row(
        38,
        "most pilots vanish at once",
        (
            f"{INJECTED}::test_when_most_pilots_fall_silent_their_jobs_are_run_by_the_rest",
            "tests/unit/domain/pilots/test_orphans.py::test_the_verdict_on_the_silent",
        ),
        ("simulation",),
    ),
    Row(39, "cancel races with the end", (f"{STEERING}::test_cancel_races_with_the_end_and_one_final_state_stands",), ("simulation",)),
    Row(
        40,
        "two releases by hand, a reconciler and a pilot at once",
        (f"{STEERING}::test_two_manual_releases_at_once_one_counts", f"{JOBS}::test_exactly_one_of_many_claimers_wins"),
        ("simulation",),
    ),
    Row(
        41,
        "rolling upgrade and back",
        (
            "tests/system/upgrade/test_rolling.py::test_forward_beside_each_other_and_back",
            "tests/unit/adapters/temporal/replay/test_replay.py::test_a_history_replays",
        ),
    ),
    Row(
        42,
        "a restored snapshot of the store",
        (
            "tests/live/test_restored.py::test_what_was_claimed_after_the_backup_is_fenced_off",
            "tests/live/test_restored.py::test_a_second_restore_of_the_same_backup_gives_a_higher_generation",
        ),
    ),
    Row(
        43,
        "a job that the store lost, and its whole index",
        (
            "tests/live/test_run_recovery.py::test_a_job_that_the_store_lost_is_made_again",
            f"{OWN_OPENSEARCH}::test_the_index_of_jobs_is_lost",
        ),
        missing="a client's own jobs are gone with it, which no store without a copy can help",
    ),
    Row(
        44,
        "a token that ends while jobs run",
        (
            f"{LOST}::test_keys_are_replaced_while_jobs_run_and_no_job_notices",
            "tests/unit/pilot/link/test_contact.py::test_an_expired_token_is_renewed",
            "tests/unit/apps/server/scheduling/test_claims.py::test_a_pilots_token_is_renewed_by_its_heartbeats",
        ),
    ),
    Row(
        45,
        "no descriptors, processes or memory left for a server",
        (
            f"{INJECTED}::test_a_server_without_descriptors_loses_nothing_it_accepted",
            f"{LOST}::test_a_server_in_want_loses_nothing_it_accepted",
        ),
    ),
)  # fmt: skip
