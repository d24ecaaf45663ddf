"""Makes a release into a folder: `release.py --dry-run FOLDER` with a test key, `release.py --key FILE FOLDER` with the owner's.

It works in a clone of the last commit: there it moves the fragments of `changes/` into the changelog, commits, and signs the tag. From the tag it builds
the packages, the plugins, the lists of parts and the docs, writes their digests, and signs these. Nothing is published, and the folder in which
it was called stays as it is: the last lines say how the owner takes the commit and the tag.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.supply_chain import sbom  # noqa: E402 - the path comes first

KINDS = ("added", "changed", "deprecated", "removed", "fixed", "security")
PLUGINS = ("forestay-bpel", "snakemake-executor-plugin-forestay", "airflow-provider-forestay", "dagman-hook-forestay")
PAGES = Path("src/forestay/apps/server/pages/static")
NAMESPACE = "forestay-release"
"""Of the signatures: one that was made for something else is not taken for one of a release."""
SIGNER = "releases@forestay"
PLACES: Mapping[str, str] = {
    "pyproject.toml": r'^version = "(.+)"$',
    "src/forestay_pilot/__init__.py": r'^__version__ = "(.+)"$',
    "plugins/forestay-bpel/pyproject.toml": r'^version = "(.+)"$',
    "plugins/snakemake-executor-plugin-forestay/pyproject.toml": r'^version = "(.+)"$',
    "plugins/airflow-provider-forestay/pyproject.toml": r'^version = "(.+)"$',
    "plugins/dagman-hook-forestay/pyproject.toml": r'^version = "(.+)"$',
    "deploy/helm/forestay/Chart.yaml": r"^version: (.+)$",
    "deploy/compose/compose.yaml": r"localhost/forestay:([0-9][^}]*)\}",
    "deploy/apptainer/pilot.def": r"org\.opencontainers\.image\.version (.+)$",
}
"""The files that contain the version, and the form in which they do."""


class RefusedError(Exception):
    """The release is impossible; the message says why."""


def version_of(tree: Path) -> str:
    """The version, which is the same in every place."""
    versions: dict[str, str] = {}
    for name, pattern in PLACES.items():
        match = re.search(pattern, (tree / name).read_text(encoding="utf-8"), re.MULTILINE)
        if match is None:
            raise RefusedError(f"{name} has no version")
        versions[name] = match[1].strip()
    if len(set(versions.values())) > 1:
        raise RefusedError("versions differ: " + ", ".join(f"{name} {version}" for name, version in versions.items()))
    return versions["pyproject.toml"]


def fragments_in(folder: Path) -> dict[str, list[str]]:
    """The texts of the fragments by kind; a file that is none is refused."""
    fragments: dict[str, list[str]] = {}
    for path in sorted(folder.glob("*.md")):
        if path.name == "README.md":
            continue
        kind = path.name.removesuffix(".md").rpartition(".")[2]
        if kind not in KINDS:
            raise RefusedError(f"{path.name} names no kind: {', '.join(KINDS)}")
        fragments.setdefault(kind, []).append(" ".join(path.read_text(encoding="utf-8").split()))
    return fragments


def released(changelog: str, version: str, day: str, fragments: Mapping[str, Sequence[str]]) -> tuple[str, str]:
    """The changelog with this release's day and fragments, and the entry alone."""
    heading = re.search(rf"^## {re.escape(version)} - not released yet\n", changelog, re.MULTILINE)
    if heading is None:
        raise RefusedError(f"CHANGELOG.md has no line '## {version} - not released yet'")
    following = re.search(r"^## ", changelog[heading.end() :], re.MULTILINE)
    end = heading.end() + following.start() if following else len(changelog)
    parts = [changelog[heading.end() : end].strip("\n")]
    for kind in KINDS:
        if lines := fragments.get(kind):
            # What breaks something is read first.
            ordered = sorted(lines, key=lambda line: not line.startswith("**Breaking"))
            parts.append(f"### {kind.capitalize()}\n\n" + "\n".join(f"- {line}" for line in ordered))
    entry = f"## {version} - {day}\n\n" + "\n\n".join(part for part in parts if part) + "\n"
    rest = f"\n{changelog[end:]}" if following else ""
    return f"{changelog[: heading.start()]}{entry}{rest}", entry


@dataclass(frozen=True, slots=True)
class Key:
    """An SSH key that signs the tag and the digests."""

    file: Path

    @property
    def public(self) -> str:
        return " ".join(run(["ssh-keygen", "-y", "-f", str(self.file)]).split()[:2])

    def sign(self, file: Path) -> Path:
        run(["ssh-keygen", "-q", "-Y", "sign", "-f", str(self.file), "-n", NAMESPACE, str(file)])
        return file.with_name(f"{file.name}.sig")

    @classmethod
    def for_tests(cls, folder: Path) -> Key:
        """One that lives as long as the folder."""
        file = folder / "test-key"
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test key of a dry run", "-f", str(file)])
        return cls(file)


def verify(file: Path, signature: Path, signers: Path) -> None:
    """As a user does it, with the list of signers; raises if the signature is not theirs."""
    words = ["ssh-keygen", "-Y", "verify", "-f", str(signers), "-I", SIGNER, "-n", NAMESPACE, "-s", str(signature)]
    subprocess.run(words, check=True, input=file.read_bytes(), capture_output=True)


def run(words: Sequence[str], *, cwd: Path = ROOT, **environment: str) -> str:
    """Run a command and return its output; error output is shown."""
    done = subprocess.run(words, cwd=cwd, env=os.environ | environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RefusedError(f"{' '.join(words[:4])} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


@dataclass(frozen=True, slots=True)
class Release:
    """One release, made in a clone."""

    source: Path
    """The clone."""
    dist: Path
    """What is released."""
    key: Key
    version: str
    day: str

    def tag(self) -> str:
        """Commit the changelog, and sign the tag."""
        changelog = self.source / "CHANGELOG.md"
        text, entry = released(
            changelog.read_text(encoding="utf-8"), self.version, self.day, fragments_in(self.source / "changes")
        )
        changelog.write_text(text, encoding="utf-8")
        for path in (self.source / "changes").glob("*.*.md"):
            path.unlink()
        (self.dist / "RELEASE_NOTES.md").write_text(entry, encoding="utf-8")
        signed = ["-c", "gpg.format=ssh", "-c", f"user.signingkey={self.key.file}"]
        name = f"v{self.version}"
        for words in (
            ["add", "--all", "CHANGELOG.md", "changes"],
            ["commit", "--quiet", "--no-verify", "-m", f"chore(release): release {self.version}"],
            [*signed, "tag", "--sign", name, "-m", f"Forestay {self.version}"],
        ):
            run(["git", *words], cwd=self.source)
        signers = self.dist / "allowed_signers"
        signers.write_text(f"{SIGNER} {self.key.public}\n", encoding="utf-8")
        run(["git", "-c", f"gpg.ssh.allowedSignersFile={signers}", "tag", "--verify", name], cwd=self.source)
        return f"{name} on {run(['git', 'rev-parse', '--short', name], cwd=self.source).strip()}"

    def build(self) -> str:
        """Wheel and source package of each distribution, from the tag, with the commit's time as theirs."""
        epoch = run(["git", "log", "-1", "--format=%ct"], cwd=self.source).strip()
        for folder in (self.source, *(self.source / "plugins" / name for name in PLUGINS)):
            words = ["uv", "build", "--quiet", "--out-dir", str(self.dist), str(folder)]
            run(words, cwd=self.source, SOURCE_DATE_EPOCH=epoch)
        (self.dist / ".gitignore").unlink(missing_ok=True)
        wheels = sorted(path.name for path in self.dist.glob("*.whl"))
        if len(wheels) != 1 + len(PLUGINS):
            raise RefusedError(f"built: {', '.join(wheels)}")
        return ", ".join(wheels)

    def check(self) -> str:
        """Check that the wheel, installed alone, prints its version."""
        with TemporaryDirectory() as folder:
            run(["uv", "venv", "--quiet", "--python", sys.executable, folder])
            wheel = next(self.dist.glob(f"forestay-{self.version}-*.whl"))
            python = f"{folder}/bin/python"
            run(["uv", "pip", "install", "--quiet", "--python", python, str(wheel)])
            printed = run([f"{folder}/bin/forestay", "--version"], cwd=Path(folder)).strip()
        if self.version not in printed.split():
            raise RefusedError(f"the installed wheel says {printed!r}")
        return printed

    def list_parts(self) -> str:
        return ", ".join(path.name for path in sbom(self.dist))

    def write_docs(self) -> str:
        """The pages of the docs, in an archive whose bytes depend on them alone."""
        with TemporaryDirectory() as folder:
            words = ["-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "docs", folder]
            run(["uv", "run", "--quiet", "--group", "docs", "--project", str(ROOT), "python", *words], cwd=self.source)
            run([sys.executable, "scripts/check_site.py", folder], cwd=self.source)
            shutil.rmtree(Path(folder) / ".doctrees", ignore_errors=True)
            archive = self.dist / f"forestay-docs-{self.version}.tar.xz"
            with tarfile.open(archive, "w:xz") as tar:
                for path in sorted(Path(folder).rglob("*")):
                    tar.add(path, f"docs/{path.relative_to(folder)}", recursive=False, filter=_without_origin)
        return f"{archive.name}, {archive.stat().st_size / 1e6:.1f} MB"

    def sign(self) -> str:
        """The digest of each file, signed; checked as a user does."""
        signers = self.dist / "allowed_signers"
        files = sorted(path for path in self.dist.iterdir() if path != signers)
        sums = self.dist / "SHA256SUMS"
        sums.write_text("".join(f"{_digest(path)}  {path.name}\n" for path in files), encoding="utf-8")
        verify(sums, self.key.sign(sums), signers)
        run(["sha256sum", "--check", "--quiet", sums.name], cwd=self.dist)
        return f"{len(files)} files"

    def make(self) -> None:
        """Every step, with its seconds."""
        steps: tuple[tuple[str, Callable[[], str]], ...] = (
            ("tag", self.tag),
            ("packages", self.build),
            ("installed", self.check),
            ("parts", self.list_parts),
            ("docs", self.write_docs),
            ("signed", self.sign),
        )
        for name, step in steps:
            began = time.monotonic()
            words = step()
            sys.stdout.write(f"{name:10} {time.monotonic() - began:5.1f} s  {words}\n")
            sys.stdout.flush()


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _without_origin(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = info.mtime = 0
    info.uname = info.gname = ""
    return info


def refuse_changes() -> None:
    """Who releases means what is in front of them."""
    if run(["git", "status", "--porcelain", "--untracked-files=no"]).strip():
        raise RefusedError("the work tree has changes that are not committed")


def clone(into: Path, *, built_pages: bool) -> None:
    """The last commit; what is not committed is no part of a release."""
    run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(into)])
    for name, fallback in (("user.name", "Forestay release"), ("user.email", SIGNER)):
        known = subprocess.run(["git", "config", name], cwd=ROOT, capture_output=True, text=True, check=False)
        run(["git", "config", name, known.stdout.strip() or fallback], cwd=into)
    if built_pages:
        if not (ROOT / PAGES / "index.html").is_file():
            raise RefusedError("the pages are not built here: just pages")
        shutil.copytree(ROOT / PAGES, into / PAGES, dirs_exist_ok=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="a folder that does not exist yet")
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--dry-run", action="store_true", help="everything, signed by a key that is thrown away")
    how.add_argument("--key", type=Path, help="the owner's SSH key")
    parser.add_argument("--built-pages", action="store_true", help="dry run: take the pages that were built here")
    given = parser.parse_args()
    if given.built_pages and not given.dry_run:
        parser.error("--built-pages goes with --dry-run: a release builds its pages")
    folder: Path = given.folder.resolve()
    with TemporaryDirectory() as keys:
        try:
            if not given.dry_run:
                refuse_changes()
            version = version_of(ROOT)
            folder.mkdir(parents=True)
            (folder / "dist").mkdir()
            clone(folder / "source", built_pages=given.built_pages)
            key = Key.for_tests(Path(keys)) if given.dry_run else Key(given.key.resolve())
            day = f"{datetime.now(UTC):%Y-%m-%d}"
            Release(folder / "source", folder / "dist", key, version, day).make()
        except (RefusedError, FileExistsError) as error:
            sys.stderr.write(f"not released: {error}\n")
            return 1
    if given.dry_run:
        sys.stdout.write(f"dry run of {version}: {folder / 'dist'} is complete, signed by a test key\n")
    else:
        sys.stdout.write(
            f"{version} is in {folder / 'dist'}. Take its commit and tag, then follow 'Publish' in the release checklist:\n"
            f"  git pull --ff-only {folder / 'source'} HEAD && git fetch {folder / 'source'} tag v{version}\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
