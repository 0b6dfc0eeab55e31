"""Published figures never fall below what runs there asked for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.resources.published_floor import published_floor
from testbed.node_loads import GIB, batch_pod, pod, pods_and_metrics

RUNNING = batch_pod("b", 3_000, 30)


@pytest.mark.parametrize(
    ("figure", "pods", "expected", "bound"),
    [
        pytest.param(5_000, [RUNNING], 5_000, "formula", id="a figure above the floor stays"),
        pytest.param(3_000, [RUNNING], 3_000, "formula", id="and one at the floor"),
        pytest.param(2_000, [RUNNING], 3_000, "floored", id="one below is raised"),
        pytest.param(None, [RUNNING], 3_000, "floored", id="what was to be removed stays for what runs"),
        pytest.param(None, [batch_pod("b", 1)], 1, "floored", id="however little that is"),
        pytest.param(None, [], None, "removed", id="with nothing there it is removed"),
        pytest.param(None, [batch_pod("b", 3_000, phase="Failed")], None, "removed", id="a finished pod holds nothing"),
        pytest.param(0, [batch_pod("b", 3_000, phase="Pending")], 3_000, "floored", id="one that is starting does"),
        pytest.param(None, [pod("ls", 3_000, 30)], None, "removed", id="a pod of another class holds nothing"),
        pytest.param(0, [], 0, "formula", id="nothing to give is a figure"),
    ],
)
def test_the_floor(figure, pods, expected, bound) -> None:
    floored = published_floor({"batch_cpu_milli": figure}, pods)

    assert floored.figures == {"batch_cpu_milli": expected}
    assert [one.bound for one in floored.because] == [bound]


def test_all_pods_of_a_class_add_up_and_each_resource_is_for_itself() -> None:
    floored = published_floor(
        {"mid_cpu_milli": None, "batch_mem_bytes": 70 * GIB, "batch_cpu_milli": 1}, [RUNNING, batch_pod("c", 500, 35)]
    )

    assert floored.figures == {"batch_cpu_milli": 3_500, "batch_mem_bytes": 70 * GIB, "mid_cpu_milli": None}
    assert [(one.of, one.terms) for one in floored.because] == [
        ("batch_cpu_milli", {"figure": 1, "floor": 3_500, "published": 3_500}),
        ("batch_mem_bytes", {"figure": 70 * GIB, "floor": 65 * GIB, "published": 70 * GIB}),
        ("mid_cpu_milli", {"floor": 0}),
    ]


@given(pods_and_metrics(), st.none() | st.integers(0, 50_000))
def test_what_runs_always_fits_into_what_is_published(mixed: tuple, figure: int | None) -> None:
    pods = [one for one in mixed[0] if one.phase in {"Running", "Pending"}]
    published = published_floor({"batch_cpu_milli": figure}, mixed[0]).figures["batch_cpu_milli"]

    assert (published or 0) >= sum(one.requests.batch_cpu_milli or 0 for one in pods)
    assert (published or 0) >= (figure or 0)
