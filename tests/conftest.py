"""What holds for every test."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from tests.sizes import examples

# A machine that is busy is no reason to fail: what is slow there is seen in the tiers' times.
settings.register_profile(
    "site", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True, max_examples=examples(100)
)
# A gate says the same of the same commit; new examples are looked for in everybody else's runs, and kept when they fail.
settings.register_profile("gate", settings.get_profile("site"), derandomize=True)
settings.load_profile("gate" if os.environ.get("CI") else "site")

OTHER_STORES = frozenset({"postgresql", "opensearch"})
_began = pytest.StashKey[float]()


def _cpu() -> float:
    """Processor time of this process and of the children that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without the garbage collector: what collecting makes lives as long as the process, and is walked for nothing."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True, wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    item.stash[_began] = _cpu()
    yield


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """What a test cost, and its id as pytest takes it, for the gate's table."""
    yield
    item.user_properties.append(("cpu", f"{_cpu() - item.stash[_began]:.2f}"))
    item.user_properties.append(("id", item.nodeid))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the repeats of a test on other stores: what does not depend on the store is shown once in the gate, on SQLite."""
    # The contract of the stores is what holds the others up: it runs on each.
    functions = [entry for entry in items if isinstance(entry, pytest.Function) and "adapter" not in entry.fixturenames]
    on_sqlite = {(function.path, function.originalname) for function in functions if "sqlite" in _parameters(function)}
    for function in functions:
        is_repeat = bool(OTHER_STORES & _parameters(function)) and (function.path, function.originalname) in on_sqlite
        if is_repeat and function.get_closest_marker("every_store") is None:
            function.add_marker(pytest.mark.other_store)


def _parameters(function: pytest.Function) -> set[str]:
    specification = getattr(function, "callspec", None)
    return {value for value in specification.params.values() if isinstance(value, str)} if specification else set()
