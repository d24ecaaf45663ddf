"""Resources: a class never hides a job that fits."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from forestay.domain.jobs.resources import MIB, Resources, class_may_fit, fits, less, resource_class

sizes = st.one_of(
    st.integers(0, 1 << 42),
    st.integers(0, 20).map(lambda power: MIB << power),
    st.integers(0, 20).map(lambda power: (MIB << power) + 1),
    st.integers(0, 20).map(lambda power: (MIB << power) - 1),
)
counts = st.one_of(st.integers(0, 70), st.integers(0, 1 << 16))
walls = st.none() | st.integers(0, 1 << 20)
node_counts = st.integers(1, 4)
resources = st.builds(Resources, counts, sizes, sizes, counts, walls, node_counts)


def _add(other_resources: Resources, more: Resources) -> Resources:
    return Resources(
        other_resources.cpus + more.cpus,
        other_resources.memory + more.memory,
        other_resources.disk + more.disk,
        other_resources.gpus + more.gpus,
        nodes=other_resources.nodes,
    )


@given(resources, resources)
@example(Resources(1, 1), Resources(1, 1))
@example(Resources(1, MIB), Resources(1, MIB))
@example(Resources(3, 2 * MIB + 1), Resources(3, 2 * MIB + 1))
def test_a_job_that_fits_is_never_hidden_by_its_class(need: Resources, more: Resources) -> None:
    free = _add(need, more)
    assert fits(need, free)
    assert class_may_fit(resource_class(need), free)


@given(resources, resources)
def test_a_class_is_no_wider_than_twice(need: Resources, free: Resources) -> None:
    """A class may be offered to a pilot in vain, but only when the pilot has more than half of what the job needs."""
    if class_may_fit(resource_class(need), free):
        assert 2 * free.cpus >= need.cpus
        assert 2 * free.memory + MIB >= need.memory
        assert 2 * free.disk + MIB >= need.disk
        assert 2 * free.gpus >= need.gpus


@given(resources, resources)
def test_larger_needs_never_fall_in_a_smaller_class(need: Resources, more: Resources) -> None:
    small, large = resource_class(need), resource_class(_add(need, more))
    assert all(a <= b for a, b in zip(_steps(small), _steps(large), strict=True))


@given(resources, resources)
def test_what_is_left_takes_exactly_what_still_fits(need: Resources, free: Resources) -> None:
    if fits(need, free):
        left = less(free, need)
        assert min(left.cpus, left.memory, left.disk, left.gpus) >= 0
        assert left.wall == free.wall
        assert _add(left, need) == Resources(free.cpus, free.memory, free.disk, free.gpus, nodes=free.nodes)


@given(resources, st.integers(0, 1 << 20), st.integers(0, 1 << 20))
def test_a_job_is_not_given_to_a_pilot_that_ends_before_it(need: Resources, limit: int, left: int) -> None:
    job = Resources(need.cpus, need.memory, need.disk, need.gpus, limit)
    pilot = Resources(need.cpus, need.memory, need.disk, need.gpus, left)
    assert fits(job, pilot) == (limit <= left)


@given(resources, resources)
def test_a_job_gets_exactly_as_many_nodes_as_it_asks_for(need: Resources, free: Resources) -> None:
    if need.nodes != free.nodes:
        assert not fits(need, free)
        assert not class_may_fit(resource_class(need), free)


def _steps(name: str) -> list[int]:
    return [
        int(part) for part in name[1:].partition("n")[0].replace("m", " ").replace("d", " ").replace("g", " ").split()
    ]
