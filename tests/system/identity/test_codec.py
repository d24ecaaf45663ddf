"""Sealed payloads: opened by their key alone, and not when a byte of them was changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.api.history.v1 import HistoryEvent

from forestay.adapters.temporal.codec import SealedPayloads, payload_keys
from forestay.ports.errors import Permanent, Transient

KEYS = {"new": b"n" * 32, "old": b"o" * 32}
PLAIN = Payload(metadata={"encoding": b"json/plain"}, data=b'{"word": "sesame"}')


def test_what_one_key_sealed_is_opened_while_another_seals() -> None:
    codec, before = SealedPayloads(KEYS), SealedPayloads({"old": KEYS["old"]})
    old, new = before.seal(PLAIN), codec.seal(PLAIN)
    assert (old.metadata["key"], new.metadata["key"]) == (b"old", b"new")
    assert codec.opened(old) == codec.opened(new) == PLAIN
    assert codec.seal(PLAIN).data != new.data  # the same twice does not look the same
    assert b"sesame" not in new.SerializeToString()
    assert codec.opened(PLAIN) == PLAIN
    with pytest.raises(Transient, match="new, which"):
        before.opened(new)


@pytest.mark.parametrize("at", [0, 15, -1])
def test_a_changed_byte_is_seen(at: int) -> None:
    codec = SealedPayloads(KEYS)
    sealed = codec.seal(PLAIN)
    changed = bytearray(sealed.data)
    changed[at] ^= 1
    sealed.data = bytes(changed)
    with pytest.raises(Transient, match="changed"):
        codec.opened(sealed)
    renamed = codec.seal(PLAIN)
    renamed.metadata["key"] = b"old"
    with pytest.raises(Transient, match="changed"):
        codec.opened(renamed)


def test_events_of_a_history_are_opened_whole() -> None:
    codec = SealedPayloads(KEYS)
    event = HistoryEvent()
    failure = event.activity_task_failed_event_attributes.failure
    failure.message = "Encoded failure"
    failure.encoded_attributes.CopyFrom(
        codec.seal(Payload(data=json.dumps({"message": "no sesame", "stack_trace": ""}).encode()))
    )
    failure.cause.application_failure_info.details.payloads.append(codec.seal(PLAIN))
    codec.open_all(event)
    assert failure.message == "no sesame"
    assert failure.cause.application_failure_info.details.payloads[0] == PLAIN


@pytest.mark.parametrize("text", ["", "a", "a 12", "a " + "0" * 63, "a " + "0" * 64 + "\na " + "1" * 64, "0" * 64])
def test_files_that_are_no_keys(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(Permanent):
        payload_keys(path)


def test_keys_that_others_can_read(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("a " + "0" * 64)
    path.chmod(0o644)
    with pytest.raises(Permanent, match="chmod"):
        payload_keys(path)
