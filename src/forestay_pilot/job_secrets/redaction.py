"""Takes the values of secrets out of what a payload prints, as it prints it.

A value is known by itself, by each of its lines, and, up to a kilobyte, by its usual encodings: base64 (also inside a longer text, as in
``Authorization: Basic``), hexadecimal, percent-encoding and JSON. Whoever wants to print a secret in another way can do so.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator

LEAST = 6
"""Bytes of a value, or of a line of one, from which on it is taken out: a shorter text is found everywhere."""
_ENCODED = 1024
_PIECE = 1024
_WIDTHS = (64, 76)  # of the lines in which base64 is usually printed
_MOST = 4000
_UNRESERVED = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~"


class Redactor:
    """Works on a stream: what may be the beginning of a value is held until more comes, or the end."""

    def __init__(self, secrets: dict[str, str]) -> None:
        """``secrets``: values by variable; bytes that are no text as `surrogateescape` has them."""
        self._marks: dict[bytes, bytes] = {}
        for name, value in secrets.items():
            for form in _forms(value.encode("utf-8", "surrogateescape")):
                if len(form) >= LEAST:
                    self._marks.setdefault(form, b"[secret " + name.encode() + b"]")
        forms = sorted(self._marks, key=len, reverse=True)[:_MOST]
        self._longest = len(forms[0]) if forms else 0
        self._by_first: dict[int, list[bytes]] = {}
        for form in forms:
            self._by_first.setdefault(form[0], []).append(form)
        # By their first byte: most of a text is passed over by one comparison.
        self._search = re.compile(
            b"|".join(
                re.escape(group[0][:1]) + b"(?:" + b"|".join(re.escape(form[1:]) for form in group) + b")"
                for group in self._by_first.values()
            )
        )
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """The next part of a stream; what can be passed on of it and of what was held."""
        if not self._longest:
            return data
        data = self._held + data
        out, end = [], 0
        for match in self._search.finditer(data):
            if self._unfinished(data, end, match.start() + 1) is not None:
                break  # what begins here, or before, may become a longer value
            out += [data[end : match.start()], self._marks[match.group()]]
            end = match.end()
        cut = self._unfinished(data, end, len(data))
        if cut is None:
            cut = len(data)
        out.append(data[end:cut])
        self._held = data[cut:]
        return b"".join(out)

    def _unfinished(self, data: bytes, start: int, end: int) -> int | None:
        """The first position in a range from which on all data may be the beginning of a value."""
        for at in range(max(start, len(data) - self._longest + 1), end):
            left = len(data) - at
            if any(len(form) > left and form.startswith(data[at:]) for form in self._by_first.get(data[at], ())):
                return at
        return None

    def flush(self) -> bytes:
        """The end of a stream: what was held."""
        data, self._held = self._held, b""
        return self._search.sub(lambda match: self._marks[match.group()], data) if self._longest else data

    def text(self, text: str) -> str:
        """A whole text without the values."""
        fresh = self._held
        self._held = b""
        redacted = self.feed(text.encode("utf-8", "surrogateescape")) + self.flush()
        self._held = fresh
        return redacted.decode("utf-8", "surrogateescape")


def _forms(value: bytes) -> Iterator[bytes]:
    """What a value is known by."""
    whole = value.strip(b"\r\n")
    for line in whole.splitlines():
        line = line.strip()
        for at in range(0, len(line), _PIECE):
            yield line[at : at + _PIECE]
    if len(whole) < LEAST:
        return
    for encoded in {base64.b64encode(value), base64.b64encode(whole)}:
        for width in _WIDTHS:
            for at in range(0, len(encoded), width):
                yield encoded[at : at + width]
    if len(whole) > _ENCODED:
        return
    for before in range(3):
        # Inside a longer text it begins at any of three positions; digits that depend on what is beside it are left out.
        encoded = base64.b64encode(b"\0" * before + whole).rstrip(b"=")
        digits = encoded[-(-before * 8 // 6) :] if before else encoded
        exact = (before + len(whole)) * 8 // 6 - (len(encoded) - len(digits))
        yield digits[:exact]
        yield digits[:exact].translate(bytes.maketrans(b"+/", b"-_"))
    yield whole.hex().encode()
    yield whole.hex().upper().encode()
    for form in ("%%%02X", "%%%02x"):
        yield b"".join(bytes((byte,)) if byte in _UNRESERVED else (form % byte).encode() for byte in whole)
    text = whole.decode("utf-8", "replace")
    yield json.dumps(text)[1:-1].encode()
    yield json.dumps(text, ensure_ascii=False)[1:-1].encode("utf-8", "replace")
