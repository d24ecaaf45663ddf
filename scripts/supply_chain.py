"""What we are made of, and whether any of it is known to be unsafe: `supply_chain.py sbom FOLDER` and `supply_chain.py audit`.

The audit fails when something unsafe is found, and when a database answered with something we cannot read. Where no database can be reached it could not be
made at all: then it says so in capitals and ends with 0, or with 3 under `--must-run`, which a release uses.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
WEB = ROOT / "web"
PIP_AUDIT = "pip-audit==2.10.0"
NOT_RUN = 3
UNREACHABLE = re.compile(
    r"(?i)name resolution|could not resolve|ENOTFOUND|EAI_AGAIN|ECONNREFUSED|connection refused|connect timeout|max retries exceeded|"
    r"40[45] (Client Error|Method Not Allowed|Not Found)|proxyerror|audit endpoint returned an error"
)
"""Messages of an unreachable database, or of a package mirror without one."""


class Verdict(StrEnum):
    """What an audit came to."""

    CLEAN = "nothing known to be unsafe"
    UNSAFE = "UNSAFE"
    NOT_RUN = "COULD NOT BE RUN: no database of vulnerabilities can be reached from here"
    BROKEN = "BROKEN: the audit failed for a reason we do not know"


class NoDatabaseError(Exception):
    """The database answered, but is empty."""


class Audit(NamedTuple):
    """One audit and its result."""

    name: str
    verdict: Verdict
    words: str


def judge(name: str, code: int, out: str, errors: str, unsafe: Callable[[Any], list[str]]) -> Audit:
    """Only an answer that can be read and has nothing in it is clean."""
    try:
        answer = json.loads(out)
        names = unsafe(answer)
    except NoDatabaseError as error:
        return Audit(name, Verdict.NOT_RUN, str(error))
    except (ValueError, KeyError, TypeError):
        verdict = Verdict.NOT_RUN if UNREACHABLE.search(f"{errors}\n{out}") else Verdict.BROKEN
        return Audit(name, verdict, errors.strip()[-400:])
    if names:
        return Audit(name, Verdict.UNSAFE, "; ".join(names))
    # Nothing found but a failed exit: it did not check everything.
    return Audit(name, Verdict.CLEAN if code == 0 else Verdict.BROKEN, errors.strip()[-400:] if code else "")


def unsafe_python(answer: Any) -> list[str]:
    parts = answer["dependencies"]
    skipped = [part["name"] for part in parts if "skip_reason" in part]
    if parts and len(skipped) == len(parts):
        raise NoDatabaseError("it knows none of the packages: this is a mirror without a database")
    lines = [f"{part['name']} {part['version']}: {bug['id']}" for part in parts for bug in part.get("vulns", ())]
    # A package that was left out was not checked: as bad as an unsafe one.
    return lines + [f"{name} was not looked at" for name in skipped]


def unsafe_node(answer: Any) -> list[str]:
    if "vulnerabilities" not in answer:
        raise KeyError("vulnerabilities")
    return [
        f"{name}: {vulnerability['severity']}"
        for name, vulnerability in answer["vulnerabilities"].items()
        if vulnerability["severity"] in ("high", "critical")
    ]


def audit() -> list[Audit]:
    """Both halves, by what the lock files pin."""
    with TemporaryDirectory() as folder:
        locked = Path(folder) / "locked.txt"
        _run(
            [
                "uv",
                "export",
                "--quiet",
                "--locked",
                "--all-extras",
                "--no-dev",
                "--no-emit-workspace",
                "-o",
                str(locked),
            ]
        )
        words = [
            "uvx",
            "--quiet",
            PIP_AUDIT,
            "--require-hashes",
            "--disable-pip",
            "--progress-spinner=off",
            "-f",
            "json",
        ]
        python = _run([*words, "-r", str(locked)], check=False)
    node = _run(["npm", "audit", "--json", "--package-lock-only"], check=False, cwd=WEB)
    return [
        judge("Python packages", python.returncode, python.stdout, python.stderr, unsafe_python),
        judge("packages of the pages", node.returncode, node.stdout, node.stderr, unsafe_node),
    ]


def pins_without_hashes(text: str) -> list[str]:
    """Requirements of an exported list that could be replaced unseen."""
    whole = text.replace("\\\n", " ")
    return [line.split()[0] for line in whole.splitlines() if line[:1].isalnum() and "--hash=sha256:" not in line]


def sbom(folder: Path) -> list[Path]:
    """Two lists of parts in CycloneDX, and the pinned requirements by their digests."""
    folder.mkdir(parents=True, exist_ok=True)
    python, node, locked = folder / "forestay.cdx.json", folder / "forestay-pages.cdx.json", folder / "requirements.txt"
    common = ["uv", "export", "--quiet", "--locked", "--all-extras", "--no-dev"]
    _run([*common, "--preview-features", "sbom-export", "--format", "cyclonedx1.5", "-o", str(python)])
    _run([*common, "--no-emit-workspace", "-o", str(locked)])
    if loose := pins_without_hashes(locked.read_text()):
        raise SystemExit(f"without a digest: {', '.join(loose)}")
    node.write_text(json.dumps(_pages_parts(), indent=2) + "\n")
    return [python, node, locked]


def _pages_parts() -> dict[str, Any]:
    """The packages of the pages, from their lock file, which has the digest of each."""
    lock = json.loads((WEB / "package-lock.json").read_text())
    own = lock["packages"][""]
    parts = []
    for place, package in sorted(lock["packages"].items()):
        if not place or package.get("dev") or "version" not in package:
            continue
        name = place.rpartition("node_modules/")[2]
        algorithm, _, digest = package["integrity"].partition("-")
        content = {"alg": algorithm.upper().replace("SHA", "SHA-"), "content": _hex(digest)}
        purl = f"pkg:npm/{name.replace('@', '%40')}@{package['version']}"
        parts.append(
            {
                "type": "library",
                "bom-ref": f"{place}@{package['version']}",
                "name": name,
                "version": package["version"],
                "purl": purl,
                "hashes": [content],
            }
        )
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": own["name"], "version": own.get("version", "0")}},
        "components": parts,
    }


def _hex(digest: str) -> str:
    from base64 import b64decode

    return b64decode(digest).hex()


def _run(words: list[str], *, check: bool = True, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    program = shutil.which(words[0]) or words[0]
    return subprocess.run([program, *words[1:]], check=check, cwd=cwd, capture_output=True, text=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("sbom").add_argument("folder", type=Path)
    verbs.add_parser("audit").add_argument("--must-run", action="store_true")
    args = parser.parse_args()
    if args.verb == "sbom":
        for path in sbom(args.folder):
            sys.stdout.write(f"{path}\n")
        return 0
    done = audit()
    for other_audit in done:
        sys.stderr.write(
            f"audit of {other_audit.name}: {other_audit.verdict}\n"
            + (f"  {other_audit.words}\n" if other_audit.words else "")
        )
    if any(audit.verdict in (Verdict.UNSAFE, Verdict.BROKEN) for audit in done):
        return 1
    return NOT_RUN if args.must_run and any(audit.verdict is Verdict.NOT_RUN for audit in done) else 0


if __name__ == "__main__":
    sys.exit(main())
