"""What the metadata buys (`just metadata-value`)."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from bench.pilots.plot import GREY, SKY, Bars, bars
from bench.report.results import Fields, percent, result, when


def _means(loads: list[Fields], *, metadata: bool) -> dict[str, float]:
    """Over all loads of one arm."""
    own = [load for load in loads if load["metadata"] is metadata]
    return {name: fmean(load[name] for load in own) for name in own[0] if name != "metadata"}


def section() -> Iterator[str]:
    found_result = result("metadata_value")
    if found_result is None:
        return
    seen, load = found_result["figures"]["diagnosis"], found_result["figures"]["mixed load"]
    log, own = seen["log"], seen["own lines"]
    informed, blind = (_means(found_result["figures"]["loads"], metadata=each) for each in (True, False))
    yield from (
        "## What the metadata buys",
        "",
        f"`just metadata-value`; {when(found_result)}.",
        "",
        "[Paper P4](../explanation/papers.md) reports for its own installation that metadata and priorities reduced the time for troubleshooting by 70 % and increased completed jobs by 50 %; it does not say how this was measured. Our figures can be measured again.",
        "",
        f"**Diagnosis.** {seen['records']} failures of public trackers, each with the cause that a person read from it, behind {60} lines of ordinary output, are reported to a real server. The measure is the amount of text",
        "to be read until the cause is known. Without metadata it is the stored log or, at best, only the lines of the failure. With metadata, it is the output of `forestay explain`; also the log if the",
        "cause is unknown or wrong; nothing if it is right and a retry helps.",
        "",
        "| characters to read, mean | without | with | less |",
        "| --- | --: | --: | --: |",
        f"| the stored log | {log['without']:.0f} | {log['with']:.0f} | {percent(1 - log['with'] / log['without'])} |",
        f"| only the lines of the failure | {own['without']:.0f} | {own['with']:.0f} | {percent(1 - own['with'] / own['without'])} |",
        "",
        f"The cause was right in {percent(seen['right'])}, unknown in {percent(seen['unknown'])}; in {percent(seen['nothing to read'])} nothing has to be read. It was recorded {1e3 * seen['seconds until on record']:.0f} ms after the report. The patterns were written with knowledge of these failures;",
        "[on unseen failures](../explanation/cause-boundaries.md), 88 % were right.",
        "",
        f"**Completion.** {load['jobs']} jobs at once on two hosts, {load['rounds']} times with and {load['rounds']} times without metadata, alternating: 60 % ordinary jobs, 15 % that need more scratch space than one of the hosts has, and, submitted last, 25 % urgent ones. Each has two attempts. *In time* means",
        "among the first half of all completions.",
        "",
        "| | without | with |",
        "| --- | --: | --: |",
        f"| jobs completed | {percent(blind['completed'])} | {percent(informed['completed'])} |",
        f"| of those that need scratch space | {percent(blind['wide_completed'])} | {percent(informed['wide_completed'])} |",
        f"| urgent jobs completed in time | {percent(blind['urgent_in_time'])} | {percent(informed['urgent_in_time'])} |",
        f"| urgent jobs, seconds to completion | {blind['urgent_seconds']:.1f} | {informed['urgent_seconds']:.1f} |",
        f"| failed attempts per load | {blind['extra_attempts']:.1f} | {informed['extra_attempts']:.1f} |",
        "",
        "The gain depends on the load: if all jobs are alike, there is none. Expected runtimes are not part of this benchmark; [Scheduling](../explanation/matching.md) shows that no job is given to a pilot with too little time left.",
        "",
        "![Completion with and without metadata](proof-metadata.svg)",
        "",
    )


def pictures() -> Iterator[tuple[str, str]]:
    found_result = result("metadata_value")
    if found_result is None:
        return
    load = {arm: _means(found_result["figures"]["loads"], metadata=arm == "with") for arm in ("with", "without")}
    groups = {"completed": "all jobs", "wide_completed": "jobs that need scratch", "urgent_in_time": "urgent, in time"}
    series = [
        Bars(word, [100 * load[arm][name] for name in groups], [0.0] * len(groups), colour)
        for word, arm, colour in (("without metadata", "without", GREY), ("with metadata", "with", SKY))
    ]
    yield (
        "proof-metadata.svg",
        bars("Jobs completed of a mixed load", list(groups.values()), series, "per cent", high=100.0),
    )
