"""Metrics: Prometheus reads them, they count what was done, and their labels stay few."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families
from tests.unit.apps.server.asks import submit
from tests.unit.apps.server.running import RunningServer, until
from tests.unit.apps.server.scripted_pilot import ScriptedPilot

LABELS = {"route", "le", "result", "outcome", "safeguards", "operation"}


async def _samples(server: RunningServer) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    answer = await server.person("viewer", tenant="watchers").get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    values: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for family in text_string_to_metric_families(answer.text):
        assert family.name.startswith("forestay_"), family.name
        assert family.documentation, family.name
        assert family.type in ("counter", "gauge", "histogram"), family
        for sample in family.samples:
            assert set(sample.labels) <= LABELS, sample
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in values, key
            values[key] = sample.value
    return values


async def test_what_is_done_is_counted(server: RunningServer, tenant: str) -> None:
    before = await _samples(server)
    ada = server.person("submitter", tenant=tenant)
    await submit(ada, *[{}] * 3)
    pilot = await ScriptedPilot.register(server, tenant)
    claimed = 0
    async with pilot.channel():
        while claimed < 3:
            for claim in await pilot.claim(most=3):
                claimed += 1
                await pilot.end(claim)
        assert (await _samples(server))[("forestay_channels_open", ())] >= 1
    after = await _samples(server)

    def grown(name: str, *labels: tuple[str, str]) -> float:
        return after[(name, labels)] - before.get((name, labels), 0.0)

    assert grown("forestay_claims_granted_total") >= 3
    assert grown("forestay_writes_total", ("result", "written")) >= 6
    assert grown("forestay_request_seconds_count", ("route", "/v1/jobs")) >= 1
    assert grown("forestay_request_seconds_count", ("route", "/v1/pilots/{pilot}/completions")) >= 1
    assert grown("forestay_queue_wait_seconds_count") >= 3
    assert grown("forestay_run_seconds_count", ("outcome", "ok")) >= 3
    assert after[("forestay_servers_alive", ())] >= 1


async def test_a_server_counts_the_failures_that_it_answers(server: RunningServer, tenant: str) -> None:
    before = await _samples(server)
    await submit(server.person("submitter", tenant=tenant), {}, max_attempts=2)
    pilot = await ScriptedPilot.register(server, tenant)
    await pilot.end(await pilot.claim_one(), outcome="failure", exit_code=1)
    counted = [("forestay_failures_total", ()), ("forestay_acts_total", (("safeguards", "granted"),))]

    async def grown() -> bool:
        after = await _samples(server)
        return all(after[pair] > before[pair] for pair in counted)

    await until(grown, "the failure to be answered and counted")


async def test_labels_do_not_grow_with_what_is_asked(local: RunningServer, tenant: str) -> None:
    ada = local.person("administrator", tenant=tenant)

    async def ask(number: int) -> set[str]:
        for path in (f"/v1/jobs/{number}", f"/v1/jobs/{number}/story", f"/nowhere/{number}", f"/v1/jobs?name={number}"):
            await ada.get(path)
        return {value for _, labels in await _samples(local) for name, value in labels if name == "route"}

    first = await ask(0)
    assert first >= {"other", "/v1/jobs", "/v1/jobs/{job}", "/v1/jobs/{job}/story"}
    await ask(1)
    many = len(await _samples(local))
    for number in range(2, 12):
        await ask(number)
    assert len(await _samples(local)) == many
