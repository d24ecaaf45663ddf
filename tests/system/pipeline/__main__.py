"""`python -m tests.system.pipeline record|compare [--failures N]`: keeps, or compares with, the digests of everything that a campaign of failures and exceptions wrote."""

from __future__ import annotations

import argparse
import json
import logging
import lzma
import sys
import time
from pathlib import Path

import structlog
from tests.system.pipeline.kept import WAYS, campaign_lines, differences, digests, keep_digests, kept_digests


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("do", choices=("record", "compare"))
    parser.add_argument("--failures", type=int, default=1_000)
    parser.add_argument("--lines", type=Path, help="a folder for everything that was written, to look at differences")
    given = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    found = {}
    for name, engine in WAYS.items():
        began = time.monotonic()
        written = campaign_lines(failures=given.failures, engine=engine)
        took = time.monotonic() - began
        say(
            f"{name}: {given.failures:,} failures, {sum(map(len, written.values())):,} writes about {len(written):,} subjects, {took:.0f} s"
        )
        found[name] = digests(written)
        if given.lines is not None:
            given.lines.mkdir(parents=True, exist_ok=True)
            with lzma.open(given.lines / f"{name.replace(' ', '-')}.json.xz", "wt") as out:
                json.dump(written, out, indent=1, sort_keys=True)
    if given.do == "record":
        keep_digests(given.failures, found)
        return 0
    different = differences(kept_digests(given.failures), found)
    for line in different[:50]:
        say(line)
    say(f"{len(different)} differences")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
