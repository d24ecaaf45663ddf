"""The central runs once more, on the store of the fleet: searches lag by a second there, and only versions are realtime."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.live.run_site import RunSite, run_site
from tests.live.test_runs import (
    _fresh,
    test_a_completed_subflow_is_undone_when_its_run_fails,
    test_a_scatter_over_shards,
    test_a_sequence_runs_to_its_end,
    test_a_subflow_runs_as_runs_of_their_own,
    test_a_suspended_run_waits_and_goes_on,
    test_what_was_done_is_undone_last_in_first_out,
)
from tests.live.test_verbs import (
    test_a_failed_task_is_submitted_again,
    test_a_run_is_restarted,
    test_a_task_is_forced_to_complete,
    test_a_task_is_replaced_by_another_flow,
    test_ancestors_are_suspended_and_continued,
    test_of_a_scatter_only_what_failed_is_done_again,
)

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunSite]:
    async with run_site("opensearch", tmp_path_factory.mktemp("runs")) as running:
        yield running


__all__ = [
    "_fresh",
    "site",
    "test_a_completed_subflow_is_undone_when_its_run_fails",
    "test_a_failed_task_is_submitted_again",
    "test_a_run_is_restarted",
    "test_a_scatter_over_shards",
    "test_a_sequence_runs_to_its_end",
    "test_a_subflow_runs_as_runs_of_their_own",
    "test_a_suspended_run_waits_and_goes_on",
    "test_a_task_is_forced_to_complete",
    "test_a_task_is_replaced_by_another_flow",
    "test_ancestors_are_suspended_and_continued",
    "test_of_a_scatter_only_what_failed_is_done_again",
    "test_what_was_done_is_undone_last_in_first_out",
]
