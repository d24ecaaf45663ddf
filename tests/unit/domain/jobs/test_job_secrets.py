"""References of secrets: the servers' reading is the pilots', and documents say which pilots can resolve them."""

from __future__ import annotations

from typing import Any

import pytest

from forestay.domain.jobs.job_secrets import (
    MAX_SECRETS,
    SecretReference,
    secrets_as_plain,
    secrets_from_plain,
    wrong_secrets,
)
from forestay.domain.jobs.requirements import needs_extra, requirement_of
from forestay.domain.jobs.specification import Specification
from forestay_pilot.job_secrets.references import read_references
from forestay_pilot.job_secrets.secret_error import SecretError

GOOD: dict[str, tuple[Any, SecretReference]] = {
    "DB_PASSWORD": ("file:db-password", SecretReference("file", "db-password")),
    "_1": ("file:app/db/token_2@x", SecretReference("file", "app/db/token_2@x")),
    "TOKEN": (
        {"vault": "secret/data/app#token", "as": "file"},
        SecretReference("vault", "secret/data/app#token", True),
    ),
    "V": ("vault:team/kv/data/a/b.c#k.1", SecretReference("vault", "team/kv/data/a/b.c#k.1")),
    "F": ({"file": "x", "as": "variable"}, SecretReference("file", "x")),
}
BAD: list[Any] = [
    "file:", "file:../x", "file:a/../b", "file:a//b", "file:/etc/passwd", "file:.hidden", "file:a/.b", "file:a b", "file:a\n",
    "file:" + "a" * 129, "file:a/b/c/d/e", "db-password", "env:HOME", "vault:secret/app#token", "vault:secret/data/app",
    "vault:data/app#token", "vault:secret/data/#token", "vault:secret/data/../sys#x", "vault:secret/data/a?b#c", "vault:/secret/data/a#b",
    "vault:secret/data/a#b#c", "vault:secret/data/" + "a/" * 20 + "b#c",
]  # fmt: skip


def test_servers_and_pilots_read_references_alike() -> None:
    read = secrets_from_plain({variable: value for variable, (value, _) in GOOD.items()})
    assert read == {variable: reference for variable, (_, reference) in GOOD.items()}
    assert list(wrong_secrets(read, {})) == []
    plain = secrets_as_plain(read)["secrets"]
    assert plain == {variable: value for variable, (value, _) in sorted(GOOD.items())} | {"F": "file:x"}
    assert secrets_from_plain(plain) == read
    of_pilot = {name: SecretReference(source, at, as_file) for name, source, at, as_file in read_references(plain)}
    assert of_pilot == read


@pytest.mark.parametrize("text", BAD)
def test_a_reference_that_means_nothing_is_refused_by_both(text: str) -> None:
    ((at, words),) = wrong_secrets(secrets_from_plain({"A": text}), {})
    assert at == ("A",)
    assert words
    with pytest.raises(SecretError):
        read_references({"A": text})


@pytest.mark.parametrize(
    "value",
    [
        "",
        {"file": ""},
        7,
        None,
        [],
        {},
        {"file": "a", "vault": "b"},
        {"file": 1},
        {"file": "a", "as": "link"},
        {"file": "a", "x": 1},
    ],
)
def test_what_is_no_reference_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="A: expected file:NAME"):
        secrets_from_plain({"A": value})


@pytest.mark.parametrize("variable", ["", "1A", "A-B", "FORESTAY_OUTPUTS", "A" * 101, "../A", "A=B"])
def test_a_variable_that_cannot_be_set_is_refused_by_both(variable: str) -> None:
    assert list(wrong_secrets({variable: SecretReference("file", "x")}, {}))
    with pytest.raises(SecretError):
        read_references({variable: "file:x"})


def test_secrets_are_few_and_replace_no_other_variable() -> None:
    many = {f"S{number}": SecretReference("file", "x") for number in range(MAX_SECRETS + 1)}
    assert [at for at, _ in wrong_secrets(many, {})] == [()]
    assert [at for at, _ in wrong_secrets({"A": SecretReference("file", "x")}, {"A": "1"})] == [("A",)]


def test_a_document_says_what_a_pilot_must_have() -> None:
    def condition(requires: str = "", **secrets: str) -> str:
        spec = Specification("s", "t", "n", ("true",), requires=requires, secrets=secrets_from_plain(secrets))
        return requirement_of(needs_extra(spec))

    assert condition() == ""
    assert condition('os == "el9"') == 'os == "el9"'
    assert condition(A="file:x", B="file:y") == 'features["secrets.file"] == "yes"'
    both = 'features["secrets.file"] == "yes" && features["secrets.vault"] == "yes"'
    assert condition("a || b", A="file:x", B="vault:s/data/x#y") == f"(a || b) && {both}"
