"""The built documentation: every link inside it has its page and its place there, and the search knows every page. `check_site.py [FOLDER]`, part of `just docs`.

Sphinx checks what it resolves itself; this reads what came out, the links that are written as HTML and those of pictures included. README and CONTRIBUTING,
which are no part of the site, are checked too.
"""

from __future__ import annotations

import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parent.parent
ALONE = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
NOT_SEARCHED = {"genindex", "search"}


class Page(HTMLParser):
    """The links of a page, and the places in it that links can name."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value and (name in {"href", "src"}):
                self.links.add(value)
            elif value and name in {"id", "name"}:
                self.places.add(value)


def broken_links(folder: Path) -> list[str]:
    """Links of the site that lead nowhere."""
    pages = {path.resolve(): Page(path.read_text(encoding="utf-8")) for path in folder.rglob("*.html")}
    broken = []
    for path, page in pages.items():
        for link in sorted(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                broken.append(f"{path.relative_to(folder.resolve())}: {link}")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].places:
                broken.append(f"{path.relative_to(folder.resolve())}: {link}: there is no such place on that page")
    return broken


def unknown_to_search(folder: Path) -> list[str]:
    """Pages that a search cannot find."""
    text = (folder / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").rstrip().removesuffix(")"))
    known = set(index["docnames"])
    there = {path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.html")}
    return sorted(there - known - NOT_SEARCHED)


def broken_in_sources(root: Path) -> list[str]:
    """Missing files to which pages outside the site link."""
    broken = []
    for name in ALONE:
        for link in re.findall(r"\]\(([^)\s]+)\)", (root / name).read_text(encoding="utf-8")):
            parts = urlsplit(link)
            if not parts.scheme and parts.path and not (root / unquote(parts.path)).exists():
                broken.append(f"{name}: {link}")
    return broken


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs/_build/html"
    wrong = [
        *broken_links(folder),
        *broken_in_sources(ROOT),
        *(f"{name}: not in the search" for name in unknown_to_search(folder)),
    ]
    for line in wrong:
        sys.stderr.write(f"{line}\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
