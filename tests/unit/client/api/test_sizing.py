"""Plans: more is never planned for with less, and the figures of a plan hold together."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from forestay.apps.cli import app
from forestay.client.api.sizing import MEASURED, OPEN_FILES, SPARE_FILES, Load, plan

loads = st.builds(
    Load,
    jobs_per_day=st.floats(1, 1e10),
    pilots=st.integers(0, 10**7),
    peak=st.floats(1, 100),
    lease=st.integers(2, 86_400),
    failures=st.floats(0, 0.9),
    keep_days=st.integers(1, 3660),
    keep_incidents_days=st.integers(1, 3660),
    keep_keys_days=st.integers(1, 3660),
    jobs_each_request=st.integers(1, 10_000),
)


@given(loads)
def test_a_plan_carries_its_peak(load: Load) -> None:
    made = plan(load)
    assert made.peak >= made.mean > 0
    assert made.servers * MEASURED.busy >= made.server_cores
    assert made.servers * MEASURED.connections >= load.pilots
    assert made.sockets * made.servers >= MEASURED.sockets * load.pilots
    assert made.sockets_one_down + SPARE_FILES <= OPEN_FILES, "what is deployed carries every plan with a server down"
    assert made.reconcilers * MEASURED.busy >= made.reconciler_cores
    assert made.orchestrators * MEASURED.busy >= made.orchestrator_cores
    assert made.store_nodes * made.store_cores_each * MEASURED.busy >= made.store_cores * 0.999
    assert made.shards * MEASURED.shard_rate >= made.peak
    assert min(made.servers, made.reconcilers, made.orchestrators) >= 2


@given(loads, st.floats(1, 100))
def test_more_jobs_never_want_less(load: Load, times: float) -> None:
    more = replace(load, jobs_per_day=load.jobs_per_day * times)
    small, large = plan(load), plan(more)
    assert (large.servers, large.reconcilers, large.shards) >= (small.servers, small.reconcilers, small.shards)
    assert large.store_bytes >= small.store_bytes
    assert large.store_cores >= small.store_cores


def test_ten_million_jobs_a_day() -> None:
    """The size that the design names: DESIGN section 11."""
    made = plan(Load(1e7, 100_000))
    assert 115 < made.mean < 117
    assert made.heartbeats == 500
    assert 50_000 < made.temporal_events_per_day < 200_000
    assert made.profile == "fleet"
    assert (made.servers, made.sockets, made.sockets_one_down) == (5, 60_000, 75_000)


@given(loads, st.sampled_from(["keep_days", "keep_incidents_days", "keep_keys_days"]))
def test_what_is_kept_longer_takes_no_less(load: Load, period: str) -> None:
    longer: dict[str, int] = {period: getattr(load, period) + 100}
    assert plan(replace(load, **longer)).store_bytes >= plan(load).store_bytes


def test_incidents_and_keys_are_counted() -> None:
    load = Load(1e7, 100_000, failures=0.05, keep_days=30, keep_incidents_days=730, keep_keys_days=365)
    jobs = 2 * 1e7 * 30 * (MEASURED.bytes_job + 0.05 * MEASURED.bytes_evidence + 0.01 * MEASURED.bytes_specification)
    incidents = 2 * 1e7 * 730 * 0.05 * MEASURED.bytes_incident
    keys = 2 * 1e7 * 365 * 0.01 * MEASURED.bytes_key
    assert plan(load).store_bytes == pytest.approx(jobs + incidents + keys)


def test_the_command_says_it() -> None:
    result = CliRunner().invoke(app, ["plan", "--jobs-per-day", "1e7", "--pilots", "1e5"])
    assert result.exit_code == 0, result.output
    assert "the fleet profile" in result.output
    assert "servers" in result.output
    returned_result = CliRunner().invoke(app, ["plan", "--jobs-per-day", "1e7", "--pilots", "1e5", "--json"])
    document = json.loads(returned_result.output)
    assert document["plan"]["servers"] == plan(Load(1e7, 100_000)).servers
    assert document["costs"]["server_job"] == MEASURED.server_job
    assert CliRunner().invoke(app, ["plan", "--jobs-per-day", "5", "--lease", "soon"]).exit_code == 2
