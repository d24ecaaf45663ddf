"""What a server reads of committed outputs, where a pilot has named a place that is not its own."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.contract.examples import job

from forestay.adapters.system.results import SharedResults
from forestay.domain.data.attempt_folder import is_own_manifest
from forestay.domain.jobs.job_document import AttemptOutcome, AttemptResult, JobDocument, Manifest, Token
from forestay.ports.errors import Permanent
from forestay.services.data.committed_files import committed_digests
from forestay.services.flows.completion_facts import CompletionFacts

TOKEN, CLAIM = Token(1, 1), "c0ffee00-1"
SECRET = b'{"secret": 1}'


def written(folder: Path, **files: bytes) -> Manifest:
    """The folder of an attempt as a pilot writes it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        if not (folder / name).exists():
            (folder / name).write_bytes(content)
    listing = [
        {"path": name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in files.items()
    ]
    text = json.dumps({"files": listing}).encode()
    (folder / "manifest.json").write_bytes(text)
    return Manifest(str(folder / "manifest.json"), hashlib.sha256(text).hexdigest(), len(files), 1)


def completed(manifest: Manifest) -> JobDocument:
    winner = AttemptResult(token=TOKEN, claim=CLAIM, outcome=AttemptOutcome.OK, reason="exit", manifest=manifest)
    return replace(job("j-1"), tenant="a", winner=winner)


def own_folder(root: Path) -> Path:
    return root / "a" / "j-1" / "1.1.c0ffee00"


async def result(root: Path, document: JobDocument) -> object:
    return await CompletionFacts(SharedResults((root,))).result(document, "result")


async def test_the_result_in_the_attempts_own_folder_is_read(tmp_path: Path) -> None:
    assert await result(tmp_path, completed(written(own_folder(tmp_path), result=b'{"mine": 1}'))) == {"mine": 1}


@pytest.mark.finding("F-C1")
async def test_the_result_of_another_tenants_job_is_not_read(tmp_path: Path) -> None:
    foreign = written(tmp_path / "b" / "j-2" / "1.1.aaaaaaaa", result=SECRET)
    document = completed(foreign)
    assert await result(tmp_path, document) is None
    with pytest.raises(Permanent, match="not in the folder of its attempt"):
        await committed_digests(SharedResults((tmp_path,)), document)


@pytest.mark.finding("F-C1")
async def test_a_link_to_another_tenants_file_shows_nothing(tmp_path: Path) -> None:
    foreign = tmp_path / "b" / "j-2" / "1.1.aaaaaaaa"
    written(foreign, result=SECRET)
    own = own_folder(tmp_path)
    own.mkdir(parents=True)
    os.symlink(foreign / "result", own / "result")
    assert await result(tmp_path, completed(written(own, result=b"a guess"))) is None


@pytest.mark.finding("F-C1")
async def test_a_manifest_that_was_changed_after_its_commit_is_not_used(tmp_path: Path) -> None:
    document = completed(written(own_folder(tmp_path), result=b"1"))
    (own_folder(tmp_path) / "result").write_bytes(b"2")
    assert await result(tmp_path, document) is None, "the file is another one"
    written(own_folder(tmp_path), result=b"2")
    assert await result(tmp_path, document) is None, "the manifest is another one"


@pytest.mark.finding("F-C1")
@pytest.mark.parametrize(
    ("path", "own"),
    [
        ("/out/a/j-1/1.1.c0ffee00/manifest.json", True),
        ("element:se/out/a/j-1/1.1.c0ffee00/manifest.json", True),
        ("/out/b/j-1/1.1.c0ffee00/manifest.json", False),
        ("/out/a/j-2/1.1.c0ffee00/manifest.json", False),
        ("/out/a/j-1/1.2.c0ffee00/manifest.json", False),
        ("/out/a/j-1/1.1.aaaaaaaa/manifest.json", False),
        ("/out/a/j-1/1.1.c0ffee00/other.json", False),
        ("/out/xa/j-1/1.1.c0ffee00/../manifest.json", False),
        ("/out/b/../a/j-1/1.1.c0ffee00/manifest.json", False),
        ("/out//a/j-1/1.1.c0ffee00/manifest.json", False),
        ("../a/j-1/1.1.c0ffee00/manifest.json", False),
        ("/out/xa/j-1/1.1.c0ffee00/manifest.json", False),
    ],
)
def test_the_manifest_of_an_attempt_is_in_its_own_folder(path: str, own: bool) -> None:
    assert is_own_manifest(path, "a", "j-1", TOKEN, CLAIM) is own
