"""Files on storage elements that this machine can access itself: a folder, or XRootD through its own programs."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from urllib.parse import urlsplit

from forestay.adapters.system.regular_file import open_regular
from forestay.ports.errors import Permanent, Transient

SECONDS = 60.0
_NO_FILE = (errno.EINVAL, errno.ELOOP, errno.ENXIO)
"""Errors of `open_regular` for what is no regular file."""
_NOT_THERE = 54
"""The exit code of xrdcp and xrdfs for a missing file."""


class FolderFiles:
    """Implements `ports.data.storage.ElementFiles` for folders."""

    async def read(self, place: str, most: int) -> bytes | None:
        return await asyncio.to_thread(self._read, place, most)

    async def remove(self, place: str, within: str) -> bool:
        return await asyncio.to_thread(self._remove, place, within)

    async def folders(self, place: str) -> Sequence[str]:
        return await asyncio.to_thread(self._folders, place)

    async def clear(self, place: str) -> int:
        return await asyncio.to_thread(self._clear, place)

    def _folders(self, place: str) -> list[str]:
        try:
            with os.scandir(place) as inside:
                return sorted(entry.name for entry in inside if entry.is_dir(follow_symlinks=False))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise Transient(f"{place}: {error.strerror}") from error

    def _clear(self, place: str) -> int:
        freed = 0
        for folder, _, names in os.walk(place):
            for name in names:
                try:
                    freed += os.lstat(os.path.join(folder, name)).st_size
                except OSError:
                    continue  # it was removed just now
        shutil.rmtree(place, ignore_errors=True)
        return freed

    def _read(self, place: str, most: int) -> bytes | None:
        try:
            with open_regular(place) as file:
                content = file.read(most + 1)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno in _NO_FILE:
                return None  # pilots write there: it may be anything
            raise Transient(f"{place}: {error.strerror}") from error
        if len(content) > most:
            raise Permanent(f"{place} is larger than {most} bytes")
        return content

    def _remove(self, place: str, within: str) -> bool:
        *folders, name = os.path.relpath(place, within).split("/")
        if ".." in folders or name in ("", ".", ".."):
            return False
        opened: list[int] = []
        try:
            # Pilots write below: a link to a folder there may lead to anybody's files.
            opened.append(os.open(within, os.O_RDONLY | os.O_DIRECTORY))
            for folder in folders:
                opened.append(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=opened[-1]))
            os.unlink(name, dir_fd=opened[-1])
            if folders:
                with suppress(OSError):  # other files are in it
                    os.rmdir(folders[-1], dir_fd=opened[-2])
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            if error.errno == errno.ELOOP:
                return False
            raise Transient(f"{place}: {error.strerror}") from error
        finally:
            for descriptor in opened:
                os.close(descriptor)
        return True


class XrootdFiles:
    """Implements `ports.data.storage.ElementFiles` for XRootD, by `xrdcp` and `xrdfs`, which must be installed."""

    async def folders(self, place: str) -> Sequence[str]:
        raise Permanent(f"{place}: folders cannot be listed here")

    async def clear(self, place: str) -> int:
        raise Permanent(f"{place}: folders cannot be cleared here")

    async def read(self, place: str, most: int) -> bytes | None:
        code, content, words = await _run("xrdcp", "--silent", "--nopbar", _absolute(place), "-", most=most)
        if code == _NOT_THERE:
            return None
        if code != 0:
            raise Transient(f"xrdcp returned {code}: {words[-200:]}")
        return content

    async def remove(self, place: str, within: str) -> bool:
        parts = urlsplit(place)
        code, _, words = await _run("xrdfs", parts.netloc, "rm", parts.path, most=1 << 16)
        if code == _NOT_THERE:
            return False
        if code != 0:
            raise Transient(f"xrdfs returned {code}: {words[-200:]}")
        return True


def _absolute(place: str) -> str:
    """With two slashes before the path: with one it would be no path of the server's."""
    parts = urlsplit(place)
    return parts._replace(path="//" + parts.path.lstrip("/")).geturl()


async def _run(program: str, *words: str, most: int) -> tuple[int, bytes, str]:
    found_program = shutil.which(program)
    if found_program is None:
        raise Permanent(f"{program} is not installed here")
    process = await asyncio.create_subprocess_exec(
        found_program,
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None  # noqa: S101 - it was asked for
    assert process.stderr is not None  # noqa: S101 - it was asked for
    try:
        async with asyncio.timeout(SECONDS):
            content = bytearray()
            while piece := await process.stdout.read(1 << 16):
                content += piece
                if len(content) > most:
                    raise Permanent(f"it is larger than {most} bytes")
            output = (await process.stderr.read(4096)).decode(errors="replace").strip()
            return await process.wait(), bytes(content), output
    except TimeoutError as error:
        raise Transient(f"{program} did not finish within {SECONDS:.0f} s") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
