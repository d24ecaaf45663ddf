"""A link that leads nowhere, and a page that the search does not know, are found."""

from __future__ import annotations

from pathlib import Path

from scripts.check_site import broken_in_sources, broken_links, unknown_to_search

INDEX = 'Search.setIndex({"docnames":["index","how-to/a"]})'


def site(folder: Path, **pages: str) -> Path:
    (folder / "how-to").mkdir()
    (folder / "searchindex.js").write_text(INDEX)
    (folder / "index.html").write_text(
        '<a href="how-to/a.html#part">a</a> <a href="https://example.org/x">far</a> <a href="#top">up</a><p id="top">'
    )
    (folder / "how-to/a.html").write_text('<h2 id="part">Part</h2><a href="../index.html">back</a>')
    for name, text in pages.items():
        (folder / f"{name}.html").write_text(text)
    return folder


def test_a_whole_site_has_nothing_broken(tmp_path: Path) -> None:
    folder = site(tmp_path)
    assert broken_links(folder) == []
    assert unknown_to_search(folder) == []


def test_links_without_a_page_or_a_place_are_named(tmp_path: Path) -> None:
    folder = site(tmp_path, index='<a href="b.html">b</a><img src="c.png"><a href="how-to/a.html#no">a</a>')
    named = broken_links(folder)
    assert [line.split(": ")[1] for line in named] == ["b.html", "c.png", "how-to/a.html#no"]


def test_a_page_that_the_search_does_not_know_is_named(tmp_path: Path) -> None:
    assert unknown_to_search(site(tmp_path, other="x", search="x")) == ["other"]


def test_files_that_the_readme_names_are_there(tmp_path: Path) -> None:
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        (tmp_path / name).write_text("[a](README.md#x) [b](https://example.org) [c](#here)")
    assert broken_in_sources(tmp_path) == []
    (tmp_path / "README.md").write_text("[gone](docs/gone.md)")
    assert broken_in_sources(tmp_path) == ["README.md: docs/gone.md"]
