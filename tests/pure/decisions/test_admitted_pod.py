"""Pods as Kubernetes objects and as what profiles see of them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.errors import BadMessageError
from slacktide.streams.decisions.admission.admitted_pod import (
    AdmittedPod,
    Container,
    amount_of,
    object_of,
    pod_of,
    quantity_of,
)
from testbed.profile_cases import BATCH_CPU, BATCH_MEM, pods
from testbed.snapshots import cases, json_text
from testbed.vectors import each_row

REAL = cases(__file__)["real"]


def test_a_pod_is_read_with_its_amounts_as_numbers(snapshot) -> None:
    assert json_text(pod_of(REAL)) == snapshot


@each_row("kubernetes")
def test_what_is_not_changed_is_as_it_was(kubernetes: dict) -> None:
    assert object_of(pod_of(kubernetes)) == kubernetes


def test_only_what_is_changed_is_written_anew(snapshot) -> None:
    pod = pod_of(REAL)
    main, side = pod.containers
    changed = replace(
        pod,
        labels={},
        annotations={"note": "x", "more": "y"},
        scheduler_name="koord-scheduler",
        priority_class_name="koord-batch",
        priority=0,
        preemption_policy="",
        init_containers=(),
        containers=(replace(main, requests={"memory": 1_024_000, "kubernetes.io/batch-cpu": 1_500}), side),
        overhead={"kubernetes.io/batch-memory": 2**29},
    )

    assert json_text(object_of(changed)) == snapshot
    assert object_of(pod) == REAL


@pytest.mark.parametrize(("milli", "text"), [(1_000, "1.0"), (1_001, "1001m"), (999, "999m")])
def test_a_changed_amount_is_written_anew(milli: int, text: str) -> None:
    pod = pod_of({"spec": {"containers": [{"name": "a", "resources": {"limits": {"cpu": "1.0", "memory": "1"}}}]}})
    (only,) = pod.containers
    changed = replace(pod, containers=(replace(only, limits={"cpu": milli, "memory": 1}),))

    assert object_of(changed)["spec"]["containers"][0]["resources"] == {"limits": {"cpu": text, "memory": "1"}}


def test_what_is_emptied_goes() -> None:
    pod = pod_of({"spec": {"containers": [{"name": "a", "resources": {"limits": {"cpu": "1"}}}]}})
    changed = replace(pod, containers=(replace(pod.containers[0], limits={}),))

    assert object_of(changed) == {"spec": {"containers": [{"name": "a"}]}}


@each_row("kubernetes", "why")
def test_what_is_no_pod_is_refused(kubernetes: dict, why: str) -> None:
    with pytest.raises(BadMessageError) as refused:
        pod_of(kubernetes)

    assert str(refused.value) == f"not a Pod: {why}"


@each_row("resource", "amount", "text")
def test_amounts_are_written_as_kubernetes_writes_them(resource: str, amount: int, text: str) -> None:
    assert quantity_of(resource, amount) == text


@each_row("resource", "quantity", "amount")
def test_quantities_are_read(resource: str, quantity: str | int, amount: int) -> None:
    assert amount_of(resource, quantity) == amount


@given(st.sampled_from(["cpu", "memory", BATCH_CPU, BATCH_MEM]), st.integers(0, 2**63))
def test_an_amount_survives_its_text(resource: str, amount: int) -> None:
    assert amount_of(resource, quantity_of(resource, amount)) == amount


@given(pods)
def test_a_pod_survives_being_an_object(pod: AdmittedPod) -> None:
    read = pod_of(object_of(pod))

    def bare(containers: tuple[Container, ...]) -> list[Container]:
        return [replace(container, kept={}) for container in containers]

    assert bare(read.containers) == bare(pod.containers)
    assert bare(read.init_containers) == bare(pod.init_containers)
    assert replace(read, kept={}, containers=(), init_containers=()) == replace(pod, containers=(), init_containers=())
