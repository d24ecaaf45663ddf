"""Encrypts the payloads that Temporal stores: its server, database and pages see neither inputs, results nor failure messages.

AES-256 in Galois/Counter Mode. Each payload names the key that sealed it, so that one key can take the place of another; the name is sealed in with
it. Search attributes stay plain, as Temporal must search them: they hold tenant, owner, flow and status, never what a user gave.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from google.protobuf.message import Message
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.converter import (
    DataConverter,
    DefaultFailureConverterWithEncodedAttributes,
    PayloadCodec,
    default,
)

from forestay.adapters.private_file import must_be_private
from forestay.ports.errors import Permanent, Transient

ENCODING = b"binary/forestay-sealed"
NONCE = 12
KEY_BYTES = 32


class SealedPayloads(PayloadCodec):
    """Seals with the first key, opens with any; unsealed payloads are read unchanged, so that sealing can be enabled at any time."""

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        self._keys = {name: AESGCM(key) for name, key in keys.items()}
        self._first = next(iter(keys))

    async def encode(self, payloads: Iterable[Payload]) -> list[Payload]:
        return [self.seal(payload) for payload in payloads]

    async def decode(self, payloads: Iterable[Payload]) -> list[Payload]:
        return [self.opened(payload) for payload in payloads]

    def seal(self, payload: Payload) -> Payload:
        name, nonce = self._first.encode(), os.urandom(NONCE)
        sealed = self._keys[self._first].encrypt(nonce, payload.SerializeToString(), name)
        return Payload(metadata={"encoding": ENCODING, "key": name}, data=nonce + sealed)

    def opened(self, payload: Payload) -> Payload:
        if payload.metadata.get("encoding") != ENCODING:
            return payload
        name = payload.metadata.get("key", b"").decode(errors="replace")
        key = self._keys.get(name)
        if key is None:
            raise Transient(f"a payload is encrypted with the key {name[:64]}, which is not in temporal_keys")
        try:
            plain = key.decrypt(payload.data[:NONCE], payload.data[NONCE:], name.encode())
        except InvalidTag:
            raise Transient(f"a payload encrypted with the key {name[:64]} was changed") from None
        return Payload.FromString(plain)

    def open_all(self, message: Message) -> None:
        """Open every payload in an event of a history, and put the texts of failures back in their places."""
        for field, value in message.ListFields():
            if field.message_type is None:
                continue
            parts = value.values() if isinstance(value, Mapping) else value if field.is_repeated else (value,)
            for part in parts:
                if isinstance(part, Payload):
                    part.CopyFrom(self.opened(part))
                elif isinstance(part, Message):
                    self.open_all(part)
        if isinstance(message, Failure) and message.HasField("encoded_attributes"):
            document = json.loads(message.encoded_attributes.data)
            message.message, message.stack_trace = document["message"], document["stack_trace"]


def sealed_converter(codec: SealedPayloads | None) -> DataConverter:
    """The converter for values sent to Temporal and back."""
    if codec is None:
        return default()
    return replace(default(), payload_codec=codec, failure_converter_class=DefaultFailureConverterWithEncodedAttributes)


def payload_keys(path: Path) -> dict[str, bytes]:
    """The keys in a file that only its owner may read: a name and 64 hexadecimal digits a line, the one that seals first."""
    must_be_private(path, "it decrypts every payload")
    keys: dict[str, bytes] = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        name, _, text = line.strip().partition(" ")
        try:
            key = bytes.fromhex(text)
        except ValueError:
            key = b""
        if line.strip():
            if len(key) != KEY_BYTES or len(name) > 64 or not name.isascii() or name in keys:
                raise Permanent(
                    f"{path}, line {number}: expected a name and 64 hexadecimal digits; each name must be unique"
                )
            keys[name] = key
    if not keys:
        raise Permanent(f"{path} contains no key; write a name and the output of: openssl rand -hex 32")
    return keys
