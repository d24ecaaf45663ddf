"""Secrets do not get into what is kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from forestay.domain.exceptions.evidence.redaction import GONE, redacted, redacted_lines, redacted_value

SECRETS = [
    ("Authorization: Bearer abcDEF123456.xyz", "abcDEF123456"),
    ('curl -H "authorization: Basic dXNlcjpwYXNzd29yZA=="', "dXNlcjpwYXNzd29yZA"),
    ("fetch https://ada:hunter2@store.example/a", "hunter2"),
    ("postgresql+asyncpg://forestay:tops3cret@db/forestay", "tops3cret"),
    ("aws_access_key_id=AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLE"),
    ("AKIAIOSFODNN7EXAMPLE was refused", "AKIAIOSFODNN7EXAMPLE"),
    ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "wJalrXUtnFEMI"),
    ("export SLACK_TOKEN='xoxb-123456789012-abcdefghij'", "xoxb"),
    ('{"password": "correct horse"}', "correct horse"),
    ("mysql --password swordfish -u root", "swordfish"),
    ("DB_PASSWORD: swordfish", "swordfish"),
    ("token ghp_abcdefghijklmnopqrstuvwxyz0123456789", "ghp_"),
    ("https://s3.example/b/k?X-Amz-Credential=AB%2F1&X-Amz-Signature=deadbeefdeadbeef", "deadbeef"),
    ("sent eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "eyJzdWIi"),
    ("-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\nabcd\n-----END RSA PRIVATE KEY-----", "MIIEpA"),
    ("-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk", "b3BlbnNzaC1rZXk"),
]


@pytest.mark.parametrize(("text", "secret"), SECRETS)
def test_what_looks_like_a_secret_goes(text: str, secret: str) -> None:
    clean = redacted(text)
    assert secret not in clean
    assert GONE in clean
    assert redacted(clean) == clean


@pytest.mark.parametrize(
    "text",
    [
        "MemoryError: Unable to allocate 3.2 GiB",
        "KeyError: 'sample'",
        "see https://example.org/docs#keys for more",
        "error: 12 of 40 blocks failed on node c-7",
    ],
)
def test_ordinary_lines_stay(text: str) -> None:
    assert redacted(text) == text


@given(some.lists(some.sampled_from([text for text, _ in SECRETS]) | some.text(max_size=40), max_size=6))
def test_twice_is_once(parts: list[str]) -> None:
    once = redacted(" ".join(parts))
    assert redacted(once) == once


@given(some.lists(some.text(max_size=60), max_size=8), some.sampled_from(SECRETS), some.integers(0, 8))
def test_a_secret_between_other_lines_goes(lines: list[str], secret: tuple[str, str], place: int) -> None:
    text, hidden = secret
    mixed = [*lines[:place], *text.split("\n"), *lines[place:]]
    clean = redacted_lines(mixed)
    assert redacted_lines(clean) == clean
    if not any(hidden in line for line in lines):
        assert hidden not in "\n".join(clean)


def test_a_telling_name_takes_its_value_along() -> None:
    assert redacted_value({"API_TOKEN": "short", "deep": [{"password": "x y"}], "keys": 3}) == {
        "API_TOKEN": GONE,
        "deep": [{"password": GONE}],
        "keys": 3,
    }
