"""What the tests of the pages share: one real site with runs, and a real Chromium."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from playwright.async_api import Browser, async_playwright, expect
from tests.live.run_site import TENANT, RunSite, run_site
from tests.system.web.acts import ACTS
from tests.system.web.browser import PHONE, WIDE, Person, chromium
from tests.system.web.filled_site import TENANT as FILLED_TENANT
from tests.system.web.filled_site import FilledSite, filled_site
from tests.unit.apps.server.asks import submit
from tests.unit.apps.server.running import until

from forestay.apps.server.pages import page_routes

LogIn = Callable[..., Awaitable[Person]]
# A machine that is busy is no reason to fail: the one place where it is said how long a page may take, in milliseconds.
PATIENCE = 120_000
expect.set_options(timeout=PATIENCE)
FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report


@pytest.fixture(scope="session")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunSite]:
    if page_routes._shell() is None:
        pytest.fail("the pages are not built: just pages", pytrace=False)
    folder = tmp_path_factory.mktemp("pages")
    # All tests fail jobs at this one site: in sum they would be a storm, and hold back what the next test waits for.
    settings: dict[str, Any] = {"approvals": "on", "peer_hosts": ("127.0.0.1",), "storm_failures": 10_000}
    async with run_site("sqlite", folder, **settings) as site:
        yield site


@pytest.fixture(scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as play:
        words = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = await play.chromium.launch(executable_path=chromium(), args=words)
        yield browser
        await browser.close()


@pytest.fixture(scope="session")
async def filled(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FilledSite]:
    """The site as operators meet it on a bad day; the tests that change it each take a group of their own."""
    async with filled_site(tmp_path_factory.mktemp("filled")) as site:
        yield site


@pytest.fixture
async def log_in(request: pytest.FixtureRequest, site: RunSite, browser: Browser) -> AsyncIterator[LogIn]:
    """Somebody with these roles at a browser of their own."""
    async with _visitors(request, site, browser, TENANT) as come:
        yield come


@pytest.fixture
async def log_in_filled(request: pytest.FixtureRequest, filled: FilledSite, browser: Browser) -> AsyncIterator[LogIn]:
    """The same, at the filled site."""
    async with _visitors(request, filled, browser, FILLED_TENANT) as come:
        yield come


@asynccontextmanager
async def _visitors(request: pytest.FixtureRequest, site: RunSite, browser: Browser, home: str) -> AsyncIterator[LogIn]:
    people: list[Person] = []

    async def come(
        name: str, *roles: str, phone: bool = False, dark: bool = False, tenant: str = home, width: int = 0
    ) -> Person:
        size = PHONE if phone else {"width": width or WIDE["width"], "height": 900 if width else WIDE["height"]}
        scheme = "dark" if dark else "light"
        context = await browser.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
        context.set_default_timeout(PATIENCE)
        people.append(await Person.log_in(context, site.server, name, *roles, tenant=tenant))
        return people[-1]

    yield come
    claimed = {name for mark in request.node.iter_markers("acts") for name in mark.args}

    async def all_done() -> bool:
        done = {name for name, act in ACTS.items() for person in people for asked in person.acted if act.was(asked)}
        return claimed <= done

    try:
        if not request.node.stash.get(FAILED, False):
            # A page may show what came of an act before the browser has told of its answer.
            await until(all_done, f"all of {sorted(claimed)}, which the test says that it does")
    finally:
        for person in people:
            if request.node.stash.get(FAILED, False):
                print(await person.seen())  # noqa: T201 - what they saw when the test failed
            await person.context.close()


@pytest.fixture
def broken(site: RunSite) -> Callable[..., Awaitable[list[str]]]:
    """Jobs that fail and wait for a person; the ids of their incidents."""

    async def submit_broken(many: int, name: str, owner: str = "ada", memory: int = 1 << 30, **fate: Any) -> list[str]:
        bad = {"outcome": "failure", "exit_code": 1} | fate
        before = site.fate
        site.fate = lambda claim: bad if claim["name"] == name else before(claim)
        person = site.server.person("submitter", tenant=TENANT, subject=owner)
        jobs = await submit(
            person, *[{}] * many, name=name, max_attempts=1, when_exhausted="hold",
            resources={"wall": 7200, "cpus": 8, "memory": memory},
        )  # fmt: skip

        async def waits() -> list[str] | None:
            ids = []
            for job in jobs:
                answer = await person.get("/v1/incidents", params={"job": job, "state": "held"})
                ids += [incident["id"] for incident in answer.json()["incidents"]]
            return ids if len(ids) == many else None

        result: list[str] = await until(waits, "the failures to wait", 60)
        site.fate = before
        return result

    return submit_broken
