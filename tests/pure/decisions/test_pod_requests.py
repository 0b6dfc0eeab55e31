"""What a pod of several containers asks for."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.pod_resources import Container, Needs
from slacktide.streams.decisions.pod_requests import pod_requests


def asking(cpu_milli: int, mem_bytes: int = 0, *, sidecar: bool = False) -> Container:
    return Container(requests=amounts(cpu_milli, mem_bytes), limits={}, sidecar=sidecar)


def amounts(cpu_milli: int, mem_bytes: int = 0) -> dict[str, Decimal]:
    return {"cpu_milli": Decimal(cpu_milli), "mem_bytes": Decimal(mem_bytes)}


def needs(*containers, inits=(), overhead=None, pod_level=None) -> Needs:
    return Needs(containers=[*containers], inits=[*inits], overhead=overhead or {}, pod_level=pod_level)


@pytest.mark.parametrize(
    ("pod", "cpu_milli", "bound"),
    [
        pytest.param(needs(asking(100), asking(50)), 150, "containers", id="containers run together"),
        pytest.param(needs(asking(100), inits=[asking(300), asking(200)]), 300, "init", id="init containers do not"),
        pytest.param(needs(asking(300), inits=[asking(300)]), 300, "containers", id="the larger of both"),
        pytest.param(needs(asking(100), inits=[asking(40, sidecar=True)]), 140, "containers", id="a sidecar goes on"),
        pytest.param(
            needs(asking(100), inits=[asking(40, sidecar=True), asking(80)]), 140, "containers", id="beside all others"
        ),
        pytest.param(
            needs(asking(10), inits=[asking(40, sidecar=True), asking(100)]), 140, "init",
            id="an init container runs beside the sidecars before it",
        ),
        pytest.param(
            needs(asking(10), inits=[asking(100), asking(40, sidecar=True)]), 100, "init", id="not those after it"
        ),
        pytest.param(needs(asking(100), overhead=amounts(25)), 125, "containers", id="the overhead comes on top"),
        pytest.param(needs(asking(100), inits=[asking(200)], overhead=amounts(25)), 225, "init", id="in any case"),
        pytest.param(needs(asking(100), pod_level=asking(500)), 500, "pod_level", id="the pod's own stands above"),
        pytest.param(needs(), 0, "containers", id="a pod without containers asks for nothing"),
        pytest.param(needs(Container(requests={}, limits={})), 0, "containers", id="one that asks for nothing too"),
    ],
)  # fmt: skip
def test_a_pods_request(pod: Needs, cpu_milli: int, bound: str) -> None:
    asked = pod_requests(pod)

    assert (asked.cpu_milli, asked.because[0].bound) == (cpu_milli, bound)


def test_each_resource_is_for_itself() -> None:
    asked = pod_requests(needs(asking(100, 10), inits=[asking(50, 20)]))

    assert (asked.cpu_milli, asked.mem_bytes) == (100, 20)
    assert [one.bound for one in asked.because] == ["containers", "init"]
    assert [one.of for one in asked.because] == ["cpu_milli", "memory_bytes"]


def test_fractions_are_rounded_up() -> None:
    assert pod_requests(needs(Container(requests={"cpu_milli": Decimal("0.5")}, limits={}))).cpu_milli == 1


def test_the_terms_are_the_arithmetic() -> None:
    pod = needs(asking(10), inits=[asking(40, sidecar=True), asking(100)], overhead=amounts(5))

    assert pod_requests(pod).because[0].terms == {
        "containers_milli": 10, "sidecars_milli": 40, "init_peak_milli": 140, "overhead_milli": 5, "request_milli": 145
    }  # fmt: skip


@given(st.lists(st.integers(0, 10_000)), st.lists(st.tuples(st.integers(0, 10_000), st.booleans())))
def test_never_less_than_what_runs_together_nor_than_any_init_container(containers, inits) -> None:
    pod = needs(*(asking(one) for one in containers), inits=[asking(one, sidecar=sidecar) for one, sidecar in inits])
    together = sum(containers) + sum(one for one, sidecar in inits if sidecar)

    assert pod_requests(pod).cpu_milli >= max([together, *(one for one, _ in inits)])
