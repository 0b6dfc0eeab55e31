"""What a pod of several containers asks for."""

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.kubernetes_fields import Container, Needs
from slacktide.streams.decisions.resources.node_load import pod_requests


def asking(cpu_milli: float, *, sidecar: bool = False) -> Container:
    return Container(requests={"cpu_milli": Decimal(cpu_milli)}, limits={}, sidecar=sidecar)


def needs(*containers, inits=(), pod_level=None) -> Needs:
    return Needs(containers=[*containers], inits=[*inits], overhead={}, pod_level=pod_level)


def test_the_pods_own_request_stands_above() -> None:
    asked = pod_requests(needs(asking(100), pod_level=asking(500)))

    assert (asked.cpu_milli, asked.because[0].bound) == (500, "pod_level")


def test_fractions_are_rounded_up() -> None:
    assert pod_requests(needs(asking(0.5))).cpu_milli == 1


@given(st.lists(st.integers(0, 10_000)), st.lists(st.tuples(st.integers(0, 10_000), st.booleans())))
def test_never_less_than_what_runs_together_nor_than_any_init_container(containers, inits) -> None:
    pod = needs(*(asking(one) for one in containers), inits=[asking(one, sidecar=sidecar) for one, sidecar in inits])
    together = sum(containers) + sum(one for one, sidecar in inits if sidecar)

    assert pod_requests(pod).cpu_milli >= max([together, *(one for one, _ in inits)])
