"""Values of secrets are taken out of a stream, however it is cut."""

from __future__ import annotations

import base64
import json
import random
from urllib.parse import quote

import pytest

from forestay_pilot.job_secrets.redaction import LEAST, Redactor

VALUE = 'p4ss/w0rd+"quoted" ü'
KEY = (
    "-----BEGIN KEY-----\n"
    + "\n".join(f"line{number}-{'abcdef' * 8}" for number in range(40))
    + "\n-----END KEY-----\n"
)


def passed(redactor: Redactor, *parts: bytes) -> bytes:
    return b"".join([redactor.feed(part) for part in parts] + [redactor.flush()])


@pytest.mark.parametrize(
    "form",
    [
        VALUE.encode(),
        base64.b64encode(VALUE.encode()),
        base64.urlsafe_b64encode(VALUE.encode()),
        VALUE.encode().hex().encode(),
        VALUE.encode().hex().upper().encode(),
        quote(VALUE, safe="").encode(),
        json.dumps(VALUE)[1:-1].encode(),
        json.dumps(VALUE, ensure_ascii=False)[1:-1].encode(),
    ],
)
def test_a_value_and_its_encodings_are_taken_out(form: bytes) -> None:
    redactor = Redactor({"DB": VALUE})
    out = passed(redactor, b"before " + form + b" after\n")
    assert b"[secret DB]" in out
    assert form not in out
    assert out.startswith(b"before ")
    assert out.endswith(b" after\n")


@pytest.mark.parametrize("user", ["a", "ab", "abc", "abcd:"])
def test_base64_of_a_longer_text_with_a_value_inside_gives_nothing_of_it(user: str) -> None:
    value = "correct-horse-battery"
    header = base64.b64encode(f"{user}{value}!".encode()).decode()
    out = passed(Redactor({"T": value}), f"Authorization: Basic {header}\n".encode()).decode()
    assert "[secret T]" in out
    left = out.partition("Basic ")[2].replace("[secret T]", "").strip()
    assert len(left) <= len(base64.b64encode(user.encode())) + 8, "only what also depends on its neighbours is left"


def test_each_line_of_a_long_value_is_taken_out() -> None:
    out = passed(Redactor({"KEY": KEY}), KEY.encode())
    assert b"abcdef" not in out
    wrapped = base64.encodebytes(KEY.encode())
    assert len(passed(Redactor({"KEY": KEY}), wrapped).replace(b"[secret KEY]", b"")) < 80


def test_it_does_not_matter_how_a_stream_is_cut() -> None:
    chance = random.Random(7)
    secrets = {"A": "abcabcabd", "B": "abcabcabdef", "C": "zzzzzz", "D": KEY}
    text = (b"x abcabcabcabd zzzzzzz abcabcabdef " + KEY.encode() + b"abcab") * 3
    whole = passed(Redactor(secrets), text)
    for _ in range(200):
        cuts = [0, *sorted(chance.sample(range(len(text)), 12)), len(text)]
        parts = [text[cuts[place] : cuts[place + 1]] for place in range(len(cuts) - 1)]
        assert passed(Redactor(secrets), *parts) == whole
    for value in secrets.values():
        for line in value.splitlines():
            assert line.encode() not in whole
    assert Redactor(secrets).text(text.decode()) == whole.decode()


def test_what_begins_like_a_value_and_is_none_comes_through() -> None:
    redactor = Redactor({"A": "secret-value"})
    assert redactor.feed(b"a secret-") == b"a "
    assert redactor.feed(b"agent") == b"secret-agent"
    assert redactor.feed(b"\nsecret-val") == b"\n"
    assert redactor.flush() == b"secret-val"


def test_short_values_are_left() -> None:
    redactor = Redactor({"PIN": "1" * (LEAST - 1), "NOTHING": ""})
    assert passed(redactor, b"11111 22") == b"11111 22"


def test_bytes_that_are_no_text_are_found() -> None:
    raw = bytes(range(128, 160))
    redactor = Redactor({"RAW": raw.decode("utf-8", "surrogateescape")})
    assert passed(redactor, b"<" + raw + b">") == b"<[secret RAW]>"
