"""Writes what is stored, for how long, and how much it takes, to docs/reference/retention.md; with ``--check`` says whether the page is current.

From the table in `services.operations.stored_kinds`, and from what `just bench retention` measured.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from forestay.apps.config.settings import Settings
from forestay.services.operations.stored_kinds import ELSEWHERE, KINDS, Growth, Place, StoredKind

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / "docs" / "reference" / "retention.md"
RESULTS = ROOT / "bench" / "results"
STORES = {"sqlite": "SQLite", "postgresql": "PostgreSQL", "opensearch": "OpenSearch"}
A_YEAR = 365 * 10**7
"""Jobs."""
SETTINGS = {
    "keep_days": "jobs, and everything that is kept as long as they; 0 turns retention off as a whole",
    "keep_incidents_days": "incidents with their decisions and steps, approvals, what people did about them",
    "keep_keys_days": "idempotency keys: the time in which a repeated submission is recognised",
    "keep_audit_days": "the audit log",
}
TITLES = {
    Place.JOBS: "Jobs",
    Place.SPECIFICATIONS: "Specifications",
    Place.RECORDS: "Records beside jobs and runs",
    Place.INCIDENTS: "Incidents",
    Place.AUDIT: "The audit log",
    Place.PILOTS: "Pilots",
    Place.HEARTBEATS: "Heartbeats",
    Place.DOCUMENTS: "Small documents",
}


def measured() -> Mapping[str, Mapping[str, Any]]:
    """The figures of each store that was measured."""
    found = {}
    for store in STORES:
        path = RESULTS / f"retention-{store}.json"
        if path.exists():
            found[store] = json.loads(path.read_text(encoding="utf-8"))["figures"]
    return found


INTRODUCTION = (
    "Every kind of document that Forestay stores, with what removes it. `just retention` writes this page from the table in the code"
    " (`services/operations/stored_kinds.py`); a test fails if a kind of document is stored that has no row, and if a row has no remover and no reason."
)
IN_MEMORY = (
    "What servers, reconcilers and orchestrators keep in memory is bounded: by a number of entries (`services/shared/recent.py` and the like; the oldest are dropped and read again), or by"
    " the life of what it is about, such as a pilot, a request or a waiting job. `tests/unit/services/test_memory.py` finds every container of a long-lived service in the syntax tree, and"
    " fails for one out of which nothing is taken, unless it says why that one does not grow: one entry for each tenant, site, rule set or other domain, of which there are as many as an operator configures."
)


def page(results: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    yield from (
        "# What is stored, and for how long",
        "",
        INTRODUCTION,
        "",
        "How to turn retention on: [Set the retention](../how-to/prune.md). Reconcilers remove what is past its period about once an hour, in batches of at most 500, and pause after each for as long as it took.",
        "",
        "| setting | default | days for which are kept |",
        "| --- | --- | --- |",
    )
    for name, what in SETTINGS.items():
        default = Settings.model_fields[name].default
        yield f"| `{name}` | {default or 'for ever'} | {what} |"
    yield from (
        "",
        "While `keep_days` is 0, nothing is removed but secrets that have expired. No other period is shorter than `keep_days`.",
        "",
        *sizes(results),
    )
    for place, title in TITLES.items():
        yield from ("", f"## {title}", "")
        yield from kinds([row for row in KINDS if row.place is place], results)
    yield from (
        "",
        "## Outside of the store",
        "",
        "| where | what | written by | removed by | after |",
        "| --- | --- | --- | --- | --- |",
    )
    for other in ELSEWHERE:
        yield f"| {other.where} | {other.what} | {other.written} | {other.removed} | {other.after} |"
    yield from (
        "",
        "## In memory",
        "",
        IN_MEMORY,
        "",
    )


def sizes(results: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    if not results:
        return
    figures = next(iter(results.values()))
    how = (
        f"Measured by `just bench retention` with {figures['jobs']:,} jobs, {figures['jobs_each_request']} in a request with an idempotency key and of one specification; each prints"
        f" {figures['output']:,} bytes, and {figures['failures']:.0%} fail once and are tried again. Bytes are those on the disk, with indexes, without copies (replicas). *A year* is what 10⁷ jobs a day write"
        " in a year, if nothing is removed: the space that they take is that, times the period in years. [`forestay plan`](cli.md#plan) uses those of OpenSearch. The measured jobs are much alike, which OpenSearch"
        " compresses well: labels, long stories and what your own programs print take more."
    )
    yield from (
        "## How much it takes",
        "",
        how,
        "",
        "| kind | documents a job | " + " | ".join(f"bytes each, {STORES[store]}" for store in results) + " | " + " | ".join(f"a year, {STORES[store]}" for store in results) + " |",
        "| --- | --: | " + " | ".join("--: | --:" for _ in results) + " |",
    )  # fmt: skip
    totals = dict.fromkeys(results, 0.0)
    for row in KINDS:
        name = f"{row.place}: {row.kind}"
        found = {store: known["kinds"][name] for store, known in results.items() if name in known["kinds"]}
        if not found or row.growth not in (Growth.JOBS, Growth.FAILURES, Growth.REQUESTS):
            continue
        each = "-".join(sorted({f"{known['each_job']:.3g}" for known in found.values()}))
        bytes_each = [f"{found[store]['bytes_each']:,}" if store in found else "–" for store in results]
        years = []
        for store in results:
            year = found[store]["each_job"] * found[store]["bytes_each"] * A_YEAR if store in found else 0.0
            totals[store] += year
            years.append(gigabytes(year))
        yield f"| `{row.kind}` ({row.place}) | {each} | {' | '.join(bytes_each)} | {' | '.join(years)} |"
    yield f"| all of these | | {' | '.join('' for _ in results)} | {' | '.join(gigabytes(total) for total in totals.values())} |"


def gigabytes(count: float) -> str:
    if count >= 1e12:
        return f"{count / 1e12:,.1f} TB"
    return f"{count / 1e9:,.0f} GB" if count >= 1e9 else f"{count / 1e6:,.0f} MB"


def kinds(rows: list[StoredKind], results: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    yield "| kind | what it is | grows with | written by | read by | removed by | after | bytes each |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --: |"
    for row in rows:
        name = f"{row.place}: {row.kind}"
        found = [known["kinds"][name]["bytes_each"] for known in results.values() if name in known["kinds"]]
        size = (
            "–" if not found else f"{min(found):,}" if min(found) == max(found) else f"{min(found):,} to {max(found):,}"
        )
        removed = f"`{row.removed}`" if row.removed else "nothing"
        yield f"| `{row.kind}` | {row.what} | {row.growth} | `{row.written}` | `{row.read}` | {removed} | {row.after} | {size} |"


def main() -> int:
    text = "\n".join(page(measured()))
    if "--check" in sys.argv[1:]:
        if PLACE.exists() and PLACE.read_text(encoding="utf-8") == text:
            return 0
        sys.stderr.write(f"{PLACE.relative_to(ROOT)} is not current: just retention\n")
        return 1
    PLACE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
