"""Write docs/reference/proof.md and its pictures from bench/results: `just proof`.

``--check`` writes nothing; exit code 1 says that the page or a picture is not what the results say, or that a result was changed by hand.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench.report import far_beyond, fault_rows, laws, metadata_value, pattern_costs, twelve
from bench.report.results import SpoiltResultError

PLACE = Path(__file__).parents[2] / "docs" / "reference"
SECTIONS = (fault_rows, twelve, laws, far_beyond, pattern_costs, metadata_value)
HEAD = """# Proof

<!-- Written by bench/report from bench/results; `just proof` writes it again. -->

Every figure here was measured with the command shown, and a script computes it from the runs that this command left in `bench/results`: run the command, then `just proof`, and the page shows your figures. A test compares the page with the results; a result that was changed by hand, or that keeps a ratio, stops the script. Absolute
rates are not comparable between machines: this one (two cores, virtual) had other work; its load is given. Ratios compare variants that alternated in one execution. [Benchmarks](benchmarks.md) describes each benchmark and what limits it. Results older than the
product's renaming contain earlier words.
"""


def wanted() -> dict[Path, str]:
    """Every file, as it should be."""
    lines = [HEAD]
    files: dict[Path, str] = {}
    for module in SECTIONS:
        lines += module.section()
        files |= {PLACE / name: text for name, text in module.pictures()}
    return {PLACE / "proof.md": "\n".join(lines).rstrip() + "\n", **files}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    try:
        files = wanted()
    except SpoiltResultError as error:
        print(error, file=sys.stderr)
        return 1
    if args.check:
        old = [path.name for path, text in files.items() if not path.exists() or path.read_text() != text]
        if old:
            print(f"{', '.join(old)}: not what the results say; run `just proof`", file=sys.stderr)
        return 1 if old else 0
    for path, text in files.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
