"""Makes users' texts harmless for a terminal.

Names, notes and logs come from the authors of jobs. An escape sequence in them could repaint the screen, forge a line or
type for the reader; a character that turns the writing direction could hide a word. Such characters are shown by their number.
"""

from __future__ import annotations

import re

_CONTROL = "\x00-\x1f\x7f-\x9f"
_HIDING = "\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f\ud800-\udfff"
_ANY = re.compile(f"[{_CONTROL}{_HIDING}]")
_ANY_BUT_LINES = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_HIDING}]")
_NOT_IN_JSON = re.compile(f"[\x7f-\x9f{_HIDING}]")
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_LINE_END = re.compile(r"\r+\n?")


_KNOWN = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _number(match: re.Match[str]) -> str:
    if match.group() in _KNOWN:
        return _KNOWN[match.group()]
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def line(text: str) -> str:
    """A text for one line of a table or a sentence, without anything that moves the cursor."""
    return _ANY.sub(_number, text)


def lines(text: str) -> str:
    """A text of many lines, such as a log: line ends and tabs stay, colours are removed, a bare carriage return becomes a new line."""
    return _ANY_BUT_LINES.sub(_number, _LINE_END.sub("\n", _COLOUR.sub("", text)))


def json(text: str) -> str:
    """A JSON document: dangerous characters that JSON does not escape are escaped as well."""
    return _NOT_IN_JSON.sub(_json_number, text)


def _json_number(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
