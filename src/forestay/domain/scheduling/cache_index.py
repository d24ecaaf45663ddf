"""Which files are cached where: by pilot, as pilots report it, and by cache domain, the pilots that share their files.

A place is a host if its pilots link each other's files, a pilot if each keeps its own, or a site. Files are there as long as one pilot of the
place has them. Every query costs one or two dictionary lookups, whatever the number of pilots.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Key = int | str
"""Names of jobs, pilots, places and files: texts in a server, numbers in a simulation of millions."""

NOTHING: Mapping[Key, int] = {}


class CacheIndex:
    """What is cached at every place."""

    __slots__ = ("_by_pilot", "_copies", "_members", "_sizes", "_where")

    def __init__(self) -> None:
        self._by_pilot: dict[Key, dict[Key, int]] = {}
        self._sizes: dict[Key, dict[Key, int]] = {}
        self._copies: dict[Key, dict[Key, int]] = {}
        """By place, how many of its pilots have a file; left out for one."""
        self._where: dict[Key, dict[Key, None]] = {}
        self._members: dict[Key, dict[Key, None]] = {}
        """The pilots of each place."""

    def at(self, place: Key) -> Mapping[Key, int]:
        """The files of a place with their sizes in bytes."""
        return self._sizes.get(place, NOTHING)

    def of(self, pilot: Key) -> Mapping[Key, int]:
        return self._by_pilot.get(pilot, NOTHING)

    def where(self, file: Key) -> Iterable[Key]:
        """The places that have a file, the first to have it first."""
        return self._where.get(file, ())

    def bytes_at(self, place: Key, files: Iterable[Key]) -> int:
        sizes = self._sizes.get(place)
        if not sizes:
            return 0
        have = 0
        for file in files:
            if file in sizes:
                have += sizes[file]
        return have

    def add(self, pilot: Key, place: Key, files: Iterable[tuple[Key, int]]) -> None:
        """A pilot of a place has these files, with their sizes."""
        mine = self._by_pilot.get(pilot)
        if mine is None:
            mine = self._by_pilot[pilot] = {}
            self._members.setdefault(place, {})[pilot] = None
        sizes = self._sizes.setdefault(place, {})
        for file, size in files:
            if file not in mine:
                if file in sizes:
                    copies = self._copies.setdefault(place, {})
                    copies[file] = copies.get(file, 1) + 1
                else:
                    self._where.setdefault(file, {})[place] = None
            mine[file] = sizes[file] = size

    def remove(self, pilot: Key, place: Key, files: Iterable[Key]) -> None:
        """A pilot no longer has these files."""
        mine = self._by_pilot.get(pilot)
        if not mine:
            return
        sizes = self._sizes[place]
        copies = self._copies.get(place, {})
        for file in files:
            if mine.pop(file, None) is None:
                continue
            many = copies.get(file, 1)
            if many > 1:
                copies[file] = many - 1
                continue
            copies.pop(file, None)
            del sizes[file]
            places = self._where[file]
            del places[place]
            if not places:
                del self._where[file]

    def lose(self, place: Key, file: Key) -> None:
        """The last link to a file at a place is gone, even if pilots there still report it."""
        for pilot in self._members.get(place, ()):
            if file in self._by_pilot[pilot]:
                self.remove(pilot, place, [file])

    def forget(self, pilot: Key, place: Key) -> None:
        """Remove a pilot, and the files that only it had."""
        self.remove(pilot, place, list(self._by_pilot.get(pilot, NOTHING)))
        if self._by_pilot.pop(pilot, None) is None:
            return
        members = self._members[place]
        del members[pilot]
        if not members:
            del self._sizes[place], self._members[place]
            self._copies.pop(place, None)
