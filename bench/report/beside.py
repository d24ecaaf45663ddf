"""Forestay beside other systems: what the twelve benchmarks say of Parsl, Dask, Celery, DBOS, Snakemake and cel-python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from bench.harness import Ratio, paired
from bench.pilots.plot import BLUE, GREEN, ORANGE, Bars, bars
from bench.report.results import (
    COMMANDS,
    Fields,
    compare,
    compare_costs,
    costs,
    counting,
    facts,
    rates,
    ratio,
    result,
    when,
    whole,
)

PEERS = {"parsl": "Parsl HTEX", "dask": "Dask", "celery": "Celery", "dbos": "DBOS"}
NAMES = {"forestay": "Forestay", "snakemake": "Snakemake", **PEERS}
KEPT = {
    "forestay": "each call and its result on disk (SQLite)",
    "forestay, retried": "the same, one job per call, which may be tried again",
    "forestay, one each": "the same, one job and one request per call",
    "forestay, not durable": "the same as the first, on a disk that is memory",
    "forestay on postgres": "on disk (PostgreSQL)",
    "parsl": "in memory",
    "dask": "in memory",
    "celery": "in memory (Redis)",
    "dbos": "on disk (PostgreSQL)",
}


BUNDLED = {"": "forestay", "dbos": "forestay on postgres"}
ONE_CALL_A_JOB = "forestay, retried"
SINGLE = {"one call a job": ONE_CALL_A_JOB, "one request a call too": "forestay, one each"}


def over(kept: Sequence[Fields], peer: str) -> Ratio | None:
    """How many times as fast bundled calls are as a peer's, on the same store where it has one."""
    ours = BUNDLED.get(peer, BUNDLED[""])
    known = all(rates(fields, ours) and rates(fields, peer) for fields in kept)
    return compare(kept, ours, peer) if known and peer != ours else None


def executors(kept: Sequence[Fields]) -> tuple[str, bool]:
    """One call a job first: that is what the others do too. Bundles are told apart, and so is what a request for each call costs."""
    single = {
        what: {words: compare(kept, arm, name) for name, words in PEERS.items()}
        for what, arm in SINGLE.items()
        if all(rates(fields, arm) for fields in kept)
    }
    bundled = {words: each for name, words in PEERS.items() if (each := over(kept, name))}
    text = "; ".join(
        f"{what}: {', '.join(f'{ratio(each)} × {words}' for words, each in of.items())}"
        for what, of in (*single.items(), ("bundled", bundled))
    )
    alone = single.get("one call a job", {})
    reached = bool(alone) and all(each.low >= 1 for each in alone.values())
    return text, reached and all(each.low >= 3 for each in bundled.values())


def lost_pilots(kept: Sequence[Fields]) -> tuple[str, bool]:
    """With leases of a minute, as in the campaigns, and with short ones where these were tried too."""
    tried = [fields["figures"] for fields in [*kept, *counting("lost_pilots")]]
    text, good = [], True
    for figures in tried:
        silence = figures["silence, seconds"]
        killed, silent = (_known(figures["equal"]["forestay"][what], figures) for what in ("killed", "silent"))
        good = good and max(killed) <= 1 and max(silent) <= 1.25 * silence
        text.append(
            f"leases of {silence} s: runs again {median(killed):.1f} s after a kill ({max(killed):.1f} at most), "
            f"{median(silent) / silence:.2f} leases after the last heartbeat ({max(silent) / silence:.2f} at most)"
        )
    return "; ".join(text), good


def latency() -> str:
    """Our way to the claim beside Parsl's round trip, from its own execution."""
    kept = [fields for fields in counting("start_latency_parsl") if "parsl" in fields["figures"]["seconds"]]
    if not kept:
        return ""
    taken = [fields["figures"]["seconds"] for fields in kept]
    each = whole([paired(seconds["claim"], seconds["parsl"]) for seconds in taken])
    return f"; {ratio(each)} × Parsl's round trip, goal ≤ 4 ({when(kept[0])})"


def conditions() -> str:
    """One condition beside cel-python's, for whom that was asked."""
    kept = counting("conditions")
    if not kept:
        return ""
    taken = [fields["figures"]["CPU µs"] for fields in kept]
    each = whole([paired(spent["cel-python"], spent["forestay"]) for spent in taken])
    ours, theirs = (median([cost for spent in taken for cost in spent[arm]]) for arm in ("forestay", "cel-python"))
    return (
        f"; one condition {ours:.1f} µs, cel-python's {theirs:.0f}: "
        f"{ratio(each)} × (goal ≥ 300; `just bench conditions`, {when(kept[0])})"
    )


def calls_missing() -> str:
    return "" if result("executor_100000") else "10⁵ calls: `--calls 100000` was not completed"


def breadth_missing() -> str:
    return (
        ""
        if result("flow_beside")
        else "Snakemake and a Dask graph: `just bench flow_beside` exists and was not completed"
    )


def commits(kept: Sequence[Fields]) -> tuple[str, bool]:
    """Counted over all campaigns."""
    lost, duplicates, unrecorded, jobs, kills = (
        sum(fields["figures"][what] for fields in kept)
        for what in ("lost", "duplicates", "unrecorded", "jobs", "kills")
    )
    return (
        f"{lost} lost, {duplicates} undetected duplicates, {unrecorded} unrecorded attempts in {jobs:,} jobs and {kills:,} kills",
        jobs >= 10**6 and not (lost or duplicates or unrecorded),
    )


def campaign() -> Fields | None:
    """The largest campaign that has left a result."""
    return next(filter(None, (result(f"chaos_{size}") for size in ("release", "full"))), None)


def campaign_sentence() -> str:
    found_campaign = campaign()
    if found_campaign is None or found_campaign["figures"]["jobs"] < 100_000:
        before = "" if found_campaign is None else f" ({commits([found_campaign])[0]}; {when(found_campaign)})"
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


def _known(each: list[float | None], figures: Fields) -> list[float]:
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


def _in_time(took: float | None, figures: Fields) -> str:
    return f"not within {figures['within']:.0f}" if took is None else f"{took:.1f}"


def _executors_table() -> Iterator[str]:
    found_result, many = result("executor"), result("executor_100000")
    naps = {length: result(f"executor_naps_{length}") for length in ("100ms", "1s")}
    if found_result is None:
        return
    kept, figures = counting("executor"), found_result["figures"]
    yield from (
        "### Executors side by side",
        "",
        (
            f"Two workers each, {figures['calls']:,} calls per round (*one each* a tenth of them), alternating; `{COMMANDS['executor']}`; {when(found_result)}. Processor time is that of client, servers and workers together, of DBOS and of Forestay on PostgreSQL without PostgreSQL's own; "
            "on a machine with other work it varies less than calls per second. *Faster by* compares bundled calls: up to 32 share a job; *retried* gives each call a job of its own, as calls that may be tried again have, and *one each* a request too. Celery's Redis writes nothing to its disk. DBOS runs its calls in threads of one process. *Utilisation* is the share of two workers' time that tasks of 100 ms and of 1 s fill."
        ),
        "",
        "| executor | calls and results are | calls per second | processor ms per call | Forestay is faster by | in processor time by | 10⁵ calls, per second | utilisation, 100 ms | 1 s |",
        "| --- | --- | --: | --: | --- | --- | --: | --: | --: |",
    )
    for name in dict.fromkeys(run["arm"] for run in found_result["runs"]):
        times = over(kept, name)
        yield (
            f"| {PEERS.get(name, name)} | {KEPT.get(name, '–')} | {median(rates(found_result, name)):,.0f} | {1e3 * median(costs(found_result, name)):.2f} | {ratio(times) if times else '–'} | {_processor(kept, name)} | {_at_once(many, name)} | "
            f"{_used(naps['100ms'], name)} | {_used(naps['1s'], name)} |"
        )
    yield from ("", *_said_of(("10⁵ calls", many), ("tasks of 100 ms", naps["100ms"]), ("of 1 s", naps["1s"])))


def _processor(kept: Sequence[Fields], name: str) -> str:
    """How many times our processor time a call a peer's is, in pairs."""
    ours = BUNDLED.get(name, BUNDLED[""])
    return "–" if name == ours else ratio(compare_costs(kept, name, ours))


def _at_once(fields: Fields | None, name: str) -> str:
    if fields is None:
        return "–"
    if name in fields["figures"]["given up after"]:
        return f"not within {fields['figures']['given up after'][name]:.0f} s"
    return f"{rates(fields, name)[0]:,.0f}" if rates(fields, name) else "–"


def _used(fields: Fields | None, name: str) -> str:
    return f"{median(used):.3f}" if fields and (used := facts(fields, name, "utilisation")) else "–"


def _said_of(*runs: tuple[str, Fields | None]) -> Iterator[str]:
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


def _spread(each: list[float | None], figures: Fields) -> str:
    if all(took is None for took in each):
        return f"not within {figures['within']:.0f}"
    known = _known(each, figures)
    return f"{median(known):.1f}, {max(known):.1f} ({len(each)})"


def _once(took: float | None, figures: Fields) -> str:
    return f"not within {figures['within']:.0f}" if took is None else f"{took:.1f}"


def pictures() -> Iterator[tuple[str, str]]:
    found_result = result("executor")
    if found_result is None:
        return
    names = {
        "forestay": ("Forestay, bundled, each call on disk", BLUE),
        "forestay, retried": ("Forestay, one call a job, on disk", "#9ecae1"),
        "parsl": ("Parsl HTEX, in memory", ORANGE),
        "dask": ("Dask, in memory", GREEN),
        "celery": ("Celery, in memory", "#8c6bb1"),
        "dbos": ("DBOS, each call on disk", "#7f7f7f"),
    }
    series = [
        Bars(words, [median(each)], [(max(each) - min(each)) / 2], colour)
        for name, (words, colour) in names.items()
        if (each := rates(found_result, name))
    ]
    yield (
        "proof-executors.svg",
        bars("Functions called through an executor, two workers each", ["no-op"], series, "calls per second"),
    )
