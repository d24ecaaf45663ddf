"""Forestay beside other systems: what the twelve benchmarks say of Parsl, Dask, Celery, DBOS, Snakemake and cel-python."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from statistics import median
from typing import Any

from bench.harness import paired
from bench.pilots.plot import BLUE, GREEN, ORANGE, Bars, bars
from bench.report.results import ratio, result, when

Figures = dict[str, Any]
PEERS = {"parsl": "Parsl HTEX", "dask": "Dask", "celery": "Celery", "dbos": "DBOS"}
NAMES = {"forestay": "Forestay", "snakemake": "Snakemake", **PEERS}
KEPT = {
    "forestay": "each call and its result on disk (SQLite)",
    "forestay, one each": "the same, one job and one request per call",
    "forestay, not durable": "the same as the first, on a disk that is memory",
    "forestay on postgres": "on disk (PostgreSQL)",
    "parsl": "in memory",
    "dask": "in memory",
    "celery": "in memory (Redis)",
    "dbos": "on disk (PostgreSQL)",
}


def over(figures: Figures, peer: str) -> Figures | None:
    """How many times as fast we are as a peer, on the same store where it has one."""
    return next(
        (
            figures[f"{ours} over {peer}"]
            for ours in ("forestay", "forestay on postgres")
            if f"{ours} over {peer}" in figures
        ),
        None,
    )


def executors(figures: Figures) -> tuple[str, bool]:
    fields = {words: over(figures, name) for name, words in PEERS.items()}
    text = "; ".join(f"{ratio(each)} × {words}" for words, each in fields.items() if each)
    return text, min(each["low"] for each in fields.values() if each) >= 3


def lost_pilots(figures: Figures) -> tuple[str, bool]:
    """With leases of a minute, as in the campaigns, and with short ones where these were tried too."""
    short = result("lost_pilots")
    tried = [figures, *([short["figures"]] if short else [])]
    text = "; ".join(
        f"leases of {each['silence, seconds']} s: runs again {median(_known(each['equal']['forestay']['killed'], each)):.1f} s after a kill ({each['worst']['killed, seconds']:.1f} at most), "
        f"{median(_known(each['equal']['forestay']['silent'], each)) / each['silence, seconds']:.2f} leases after the last heartbeat ({each['worst']['silent, leases']:.2f} at most)"
        for each in tried
    )
    good = all(each["worst"]["killed, seconds"] <= 1 and each["worst"]["silent, leases"] <= 1.25 for each in tried)
    return text, good


def latency(figures: Figures) -> str:
    """Our way to the claim beside Parsl's round trip; where it was not tried with the rest, from its own run."""
    found_result = result("start_latency_parsl")
    each = figures.get("claim over parsl") or (found_result and found_result["figures"]["claim over parsl"])
    if not each:
        return ""
    text = f" ({when(found_result)})" if found_result and "claim over parsl" not in figures else ""
    return f"; {ratio(each)} × Parsl's round trip, goal ≤ 4{text}"


def conditions() -> str:
    """One condition beside cel-python's, for whom that was asked."""
    found_result = result("conditions")
    if found_result is None:
        return ""
    figures = found_result["figures"]
    return (
        f"; one condition {figures['median']['forestay']:.1f} µs, cel-python's {figures['median']['cel-python']:.0f}: "
        f"{ratio(figures['cel-python over forestay'])} × (goal ≥ 300; `just bench conditions`, {when(found_result)})"
    )


def calls_missing() -> str:
    return "" if result("executor_100000") else "10⁵ calls: `--calls 100000` was not completed"


def breadth_missing() -> str:
    return (
        ""
        if result("flow_beside")
        else "Snakemake and a Dask graph: `just bench flow_beside` exists and was not completed"
    )


def commits(figures: Figures) -> tuple[str, bool]:
    return (
        f"{figures['lost']} lost, {figures['duplicates']} undetected duplicates, {figures['unrecorded']} unrecorded attempts in {figures['jobs']:,} jobs and {figures['kills']:,} kills",
        figures["jobs"] >= 10**6 and not (figures["lost"] or figures["duplicates"] or figures["unrecorded"]),
    )


def campaign() -> dict[str, Any] | None:
    """The largest campaign that has left a result."""
    return next(filter(None, (result(f"chaos_{size}") for size in ("release", "full"))), None)


def campaign_sentence() -> str:
    found_campaign = campaign()
    if found_campaign is None or found_campaign["figures"]["jobs"] < 100_000:
        before = "" if found_campaign is None else f" ({commits(found_campaign['figures'])[0]}; {when(found_campaign)})"
        return f"The campaign of 100,000 jobs (`just chaos release`) was not completed yet; the largest completed one had 10,000 jobs{before}, see [benchmarks](benchmarks.md)."
    figures = found_campaign["figures"]
    deaths, silences = figures["death to release, seconds"], figures["silence to release, leases"]
    times = (
        [
            f"a pilot's death was detected after {deaths['median']:.2f} s ({deaths['most']:.2f} at most of {deaths['measured']})"
        ]
        if deaths
        else []
    )
    times += (
        [f"jobs of silent pilots were released after {silences['most']:.2f} leases of {figures['lease']} s at most"]
        if silences
        else []
    )
    verdict = (
        "the auditor found no violation"
        if not figures["complaints"]
        else "the auditor found: " + "; ".join(figures["complaints"])
    )
    return (
        f"The campaign of {figures['jobs']:,} jobs (`just chaos release`, seed {figures['seed']}, {figures['seconds'] / 60:.0f} minutes; {when(found_campaign)}) had {sum(figures['faults'].values()):,} injected failures, "
        f"{figures['kills']:,} of them kills: {figures['lost']} lost, {figures['duplicates']} undetected duplicates, {figures['unrecorded']} unrecorded attempts, {figures['payloads killed']} payloads killed, "
        f"{figures['false orphans']} false orphans, {figures['extra runs']:,} extra attempts; {', '.join(times)}; {verdict}."
    )


def _known(each: list[float | None], figures: Figures) -> list[float]:
    """Times, with those that were not waited for as long as they were waited for."""
    return [figures["within"] if took is None else took for took in each]


def section() -> Iterator[str]:
    yield from ("![Calls per second, durable and not](proof-executors.svg)", "")
    yield from _executors_table()
    yield from _lost_table()
    yield from _flows_table()


def _flows_table() -> Iterator[str]:
    found_result = result("flow_beside")
    if found_result is None:
        return
    figures = found_result["figures"]
    yield from (
        "### Flows side by side",
        "",
        f"This many no-ops and one job that collects them, two workers: `just bench flow_beside --peers snakemake,dask`; {when(found_result)}. A real pilot and Snakemake start a process for each job, Dask calls a function. *Accepted* is planned (`--dry-run`) for Snakemake.",
        "",
        "| jobs | system | accepted, s | completed, s | peak memory of a process, MiB |",
        "| --: | --- | --: | --: | --: |",
    )
    for row in figures["rows"]:
        yield (
            f"| {row['jobs']:,} | {NAMES[row['system']]} | {_in_time(row['accepted'], figures)} | {_in_time(row['ended'], figures) if row['run'] or row['ended'] else '–'} | "
            f"{row['peak'] / (1 << 20):.0f} |"
            if row["peak"]
            else f"| {row['jobs']:,} | {NAMES[row['system']]} | {_in_time(row['accepted'], figures)} | {_in_time(row['ended'], figures)} | – |"
        )
    yield ""


def _in_time(took: float | None, figures: Figures) -> str:
    return f"not within {figures['within']:.0f}" if took is None else f"{took:.1f}"


def _executors_table() -> Iterator[str]:
    found_result, many = result("executor"), result("executor_100000")
    naps = {length: result(f"executor_naps_{length}") for length in ("100ms", "1s")}
    if found_result is None or "CPU ms a call" not in found_result["figures"]:
        return
    figures = found_result["figures"]
    yield from (
        "### Executors side by side",
        "",
        (
            f"Two workers each, {figures['calls']:,} calls per round, alternating; {when(found_result)}. Processor time is that of client, servers and workers together, of DBOS and of Forestay on PostgreSQL without PostgreSQL's own; "
            "on a machine with other work it varies less than calls per second. Celery's Redis writes nothing to its disk. DBOS runs its calls in threads of one process. *Utilisation* is the share of two workers' time that tasks of 100 ms and of 1 s fill."
        ),
        "",
        "| executor | calls and results are | calls per second | processor ms per call | Forestay is faster by | in processor time by | 10⁵ calls, per second | utilisation, 100 ms | 1 s |",
        "| --- | --- | --: | --: | --- | --- | --: | --: | --: |",
    )
    for name, each in figures["rates"].items():
        times = over(figures, name)
        yield (
            f"| {PEERS.get(name, name)} | {KEPT.get(name, '–')} | {median(each):,.0f} | {figures['CPU ms a call'][name]:.2f} | {ratio(times) if times else '–'} | {_processor(found_result, name)} | {_at_once(many, name)} | "
            f"{_used(naps['100ms'], name)} | {_used(naps['1s'], name)} |"
        )
    yield from ("", *_said_of(("10⁵ calls", many), ("tasks of 100 ms", naps["100ms"]), ("of 1 s", naps["1s"])))


def _processor(fields: dict[str, Any], name: str) -> str:
    """How many times our processor time a call a peer's is, in pairs."""
    ours = "forestay on postgres" if name == "dbos" else "forestay"
    spent = {
        who: [sum(run["cpu"].values()) / run["operations"] for run in fields["runs"] if run["arm"] == who]
        for who in (name, ours)
    }
    if name == ours or len(spent[name]) != len(spent[ours]):
        return "–"
    return ratio(asdict(paired(spent[name], spent[ours])))


def _at_once(fields: dict[str, Any] | None, name: str) -> str:
    if fields is None:
        return "–"
    if name in fields["figures"]["given up after"]:
        return f"not within {fields['figures']['given up after'][name]:.0f} s"
    return f"{fields['figures']['rates'][name][0]:,.0f}" if name in fields["figures"]["rates"] else "–"


def _used(fields: dict[str, Any] | None, name: str) -> str:
    return (
        f"{fields['figures']['utilisation'][name]:.3f}" if fields and name in fields["figures"]["utilisation"] else "–"
    )


def _said_of(*runs: tuple[str, dict[str, Any] | None]) -> Iterator[str]:
    text = "; ".join(f"{words}: {when(run)}" for words, run in runs if run)
    if text:
        yield from (f"{text[0].upper()}{text[1:]}.", "")


def _lost_table() -> Iterator[str]:
    kept = [
        other_result
        for name in ("lost_pilots", "lost_pilots_60", "lost_pilots_defaults")
        if (other_result := result(name))
    ]
    if not kept:
        return
    text = "; ".join(f"{record['benchmark']}: {when(record)}" for record in kept)
    yield from (
        "### Lost workers side by side",
        "",
        (
            "Two workers, one of which runs a task and is lost with all it started; seconds from the signal until the task runs again on the other, median and maximum. With *equal* settings all tolerate the same time without a heartbeat: our lease, "
            f"Dask's `worker-ttl`, Parsl's `heartbeat_threshold`. Defaults are 600 s for our lease, 300 s and 120 s for theirs; once each. {text}."
        ),
        "",
        "| system | settings | killed (SIGKILL) | silent (SIGSTOP) |",
        "| --- | --- | --- | --- |",
    )
    for other_result in kept:
        figures = other_result["figures"]
        for name, each in figures["equal"].items():
            if each["killed"]:
                yield f"| {NAMES[name]} | equal, {figures['silence, seconds']} s | {_spread(each['killed'], figures)} | {_spread(each['silent'], figures)} |"
        for name, took in figures["defaults"].items():
            if took:
                yield f"| {NAMES[name]} | defaults | {_once(took['killed'], figures)} | {_once(took['silent'], figures)} |"
    yield from (
        "",
        (
            "Forestay gives up a silent pilot after 1.2 leases, and never before the lease plus ten seconds; so short leases are exceeded by more. A server that was itself blocked for a second, for example on a busy machine, waits ten seconds longer before it treats a closed channel as a death. "
            "A pilot that was given up too early only costs repeated work: its late completion never counts twice."
        ),
        "",
    )


def _spread(each: list[float | None], figures: Figures) -> str:
    if all(took is None for took in each):
        return f"not within {figures['within']:.0f}"
    known = _known(each, figures)
    return f"{median(known):.1f}, {max(known):.1f} ({len(each)})"


def _once(took: float | None, figures: Figures) -> str:
    return f"not within {figures['within']:.0f}" if took is None else f"{took:.1f}"


def pictures() -> Iterator[tuple[str, str]]:
    found_result = result("executor")
    if found_result is None:
        return
    rates = found_result["figures"]["rates"]
    names = {
        "forestay": ("Forestay, each call on disk", BLUE),
        "parsl": ("Parsl HTEX, in memory", ORANGE),
        "dask": ("Dask, in memory", GREEN),
        "celery": ("Celery, in memory", "#8c6bb1"),
        "dbos": ("DBOS, each call on disk", "#7f7f7f"),
    }
    series = [
        Bars(words, [median(rates[name])], [(max(rates[name]) - min(rates[name])) / 2], colour)
        for name, (words, colour) in names.items()
        if name in rates
    ]
    yield (
        "proof-executors.svg",
        bars("Functions called through an executor, two workers each", ["no-op"], series, "calls per second"),
    )
