"""The installation's own signing key is replaced with nobody losing their token: two keys are good for a while."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from forestay.adapters.joserfc.identity import SignedIdentity, signing_keys
from forestay.adapters.system.clock import SystemClock
from forestay.ports.errors import Permanent
from forestay.ports.operations.identity import BadToken, Role

OLD, NEW = b"o" * 64, b"n" * 64


def _identity(*keys: bytes) -> SignedIdentity:
    return SignedIdentity(keys, SystemClock())


def _token(identity: SignedIdentity) -> str:
    return identity.issue(subject="ada", tenant="physics", roles=frozenset({Role.VIEWER}), seconds=600)


def test_two_keys_are_good_while_one_takes_the_place_of_the_other() -> None:
    before, during, swapped, after = _identity(OLD), _identity(OLD, NEW), _identity(NEW, OLD), _identity(NEW)
    old, new = _token(during), _token(swapped)
    # Whichever server is asked while they are told one after the other, no token that is given out is refused.
    for servers, token in (((before, during, swapped), old), ((during, swapped, after), new)):
        assert {server.verify(token).subject for server in servers} == {"ada"}
    with pytest.raises(BadToken):
        after.verify(old)
    with pytest.raises(BadToken):
        before.verify(new)
    sealed = during.seal({"on": "/"}, purpose="login", seconds=60)
    assert swapped.unseal(sealed, purpose="login") == {"on": "/"}
    for bad, purpose in ((sealed, "other"), (old, "login")):
        with pytest.raises(BadToken):
            swapped.unseal(bad, purpose=purpose)
    with pytest.raises(BadToken):
        swapped.verify(sealed)


def test_the_file_has_a_key_a_line(tmp_path: Path) -> None:
    path = tmp_path / "signing-key"
    (made,) = signing_keys(path)
    path.write_text(f"{'n' * 64}\n{made.decode()}\n")
    assert signing_keys(path) == [b"n" * 64, made]
    path.write_text(f"{made.decode()}\nshort\n")
    with pytest.raises(Permanent, match="too short"):
        signing_keys(path)
    path.write_text(made.decode())
    path.chmod(0o640)
    with pytest.raises(Permanent, match="chmod"):
        signing_keys(path)


def test_all_who_start_for_the_first_time_together_have_one_key(tmp_path: Path) -> None:
    for number in range(20):
        together = threading.Barrier(6)

        def start(path: Path = tmp_path / str(number), together: threading.Barrier = together) -> list[bytes]:
            together.wait()
            return signing_keys(path)

        with ThreadPoolExecutor(6) as pool:
            results = [entry.result() for entry in [pool.submit(start) for _ in range(6)]]
        assert all(result == results[0] for result in results)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(map(str, range(20)))
