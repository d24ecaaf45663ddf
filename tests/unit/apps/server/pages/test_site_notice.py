from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from forestay.apps.server.pages.site_notice import FRESH, LONGEST, SiteNotice


@dataclass
class HandClock:
    """A fake clock, put forward by hand."""

    seconds: float = 0.0

    def now(self) -> int:
        return int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds


async def test_without_a_file_there_is_no_notice(tmp_path: Path) -> None:
    assert await SiteNotice(None, HandClock()).text() == ""
    assert await SiteNotice(tmp_path / "missing", HandClock()).text() == ""


async def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    file, clock = tmp_path / "notice", HandClock()
    file.write_text("Maintenance\n  on Friday\n")
    notice = SiteNotice(file, clock)
    assert await notice.text() == "Maintenance on Friday"
    file.unlink()
    assert await notice.text() == "Maintenance on Friday"
    clock.seconds += FRESH
    assert await notice.text() == ""


async def test_a_long_file_is_cut_and_bytes_that_are_no_text_are_left_out(tmp_path: Path) -> None:
    file = tmp_path / "notice"
    file.write_bytes(b"a\x1b[31m\xff\x00b \xe2\x80\xae" + "é".encode() * 10_000)
    shown = await SiteNotice(file, HandClock()).text()
    assert shown.startswith("a[31mb é")
    assert len(shown) == LONGEST
