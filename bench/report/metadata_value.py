"""What the metadata buys (`just metadata-value`)."""

from __future__ import annotations

from collections.abc import Iterator

from bench.pilots.plot import GREY, SKY, Bars, bars
from bench.report.results import percent, result, when


def section() -> Iterator[str]:
    found = result("metadata_value")
    if found is None:
        return
    seen, load = found["figures"]["diagnosis"], found["figures"]["mixed load"]
    log, own = seen["log"], seen["own lines"]
    informed, blind = load["with"], load["without"]
    yield from (
        "## What the metadata buys",
        "",
        f"`just metadata-value`; {when(found)}.",
        "",
        "[Paper P4](../explanation/papers.md) says of its own installation that metadata and priorities brought 70 % less time for troubleshooting and 50 % more jobs completed; it does not say how that was measured. Ours can be measured again.",
        "",
        f"**Diagnosis.** {seen['records']} failures of public trackers, each with the cause that a person read from it, behind {60} lines of ordinary output, are reported to a real server. Nobody is timed; what is counted is the text",
        "that there is to read until the cause is known. Without metadata it is the log that is kept, or, at best, the failure's own lines, as if somebody had pointed to them. With it, it is what `forestay explain` says; the log as well where the",
        "cause is unknown or wrong; nothing where it is right and another try by itself helps.",
        "",
        "| characters to read, mean | without | with | less |",
        "| --- | --: | --: | --: |",
        f"| the log that is kept | {log['without']:.0f} | {log['with']:.0f} | {percent(log['less'])} |",
        f"| the failure's own lines, already found | {own['without']:.0f} | {own['with']:.0f} | {percent(own['less'])} |",
        "",
        f"The cause was right in {percent(seen['right'])}, unknown in {percent(seen['unknown'])}; in {percent(seen['nothing to read'])} nobody has to read anything. It was on record {1e3 * seen['seconds until on record']:.0f} ms after the report. These failures were known when the patterns were written;",
        "[when they were not](../explanation/cause-boundaries.md), 88 % were right.",
        "",
        f"**Completion.** {load['jobs']} jobs at once on two hosts, {load['rounds']} times with and {load['rounds']} times without metadata in turns: 60 % ordinary ones, 15 % that want more scratch than one of the hosts has, and, submitted last, 25 % urgent ones. Each has two tries. *In time* is",
        "what ends in the first half of all ends.",
        "",
        "| | without | with |",
        "| --- | --: | --: |",
        f"| jobs completed | {percent(blind['completed'])} | {percent(informed['completed'])} |",
        f"| of those that want scratch | {percent(blind['wide_completed'])} | {percent(informed['wide_completed'])} |",
        f"| urgent jobs completed in time | {percent(blind['urgent_in_time'])} | {percent(informed['urgent_in_time'])} |",
        f"| urgent jobs, seconds to their end | {blind['urgent_seconds']:.1f} | {informed['urgent_seconds']:.1f} |",
        f"| attempts that failed, a load | {blind['extra_attempts']:.1f} | {informed['extra_attempts']:.1f} |",
        "",
        "How much is gained depends on the load: where all jobs are alike, nothing is. Expected runtimes are not part of it; that no job is given to a pilot which ends before it is shown elsewhere ([matching](../explanation/matching.md)).",
        "",
        "![Completion with and without metadata](proof-metadata.svg)",
        "",
    )


def pictures() -> Iterator[tuple[str, str]]:
    found = result("metadata_value")
    if found is None:
        return
    load = found["figures"]["mixed load"]
    groups = {"completed": "all jobs", "wide_completed": "jobs that want scratch", "urgent_in_time": "urgent, in time"}
    series = [
        Bars(word, [100 * load[arm][name] for name in groups], [0.0] * len(groups), colour)
        for word, arm, colour in (("without metadata", "without", GREY), ("with metadata", "with", SKY))
    ]
    yield (
        "proof-metadata.svg",
        bars("Jobs completed of a mixed load", list(groups.values()), series, "per cent", high=100.0),
    )
