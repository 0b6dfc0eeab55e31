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
from testbed import profile_cases as cases

REAL = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"generateName": "job-", "labels": {"app": "spark"}, "annotations": {"note": "x"}, "uid": "u"},
    "spec": {
        "schedulerName": "default-scheduler",
        "priorityClassName": "koord-prod",
        "priority": 9500,
        "preemptionPolicy": "PreemptLowerPriority",
        "initContainers": [{"name": "init", "image": "i", "resources": {"limits": {"cpu": "0.5"}}}],
        "containers": [
            {"name": "main", "resources": {"requests": {"cpu": "1.5", "memory": "1e3Ki"}, "limits": {"x/gpu": "1"}}},
            {"name": "side", "resources": {}, "env": [{"name": "A", "value": "b"}]},
        ],
        "overhead": {"memory": "0.5Gi"},
        "terminationGracePeriodSeconds": 30,
    },
    "status": {},
}


def test_a_pod_is_read_with_its_amounts_as_numbers() -> None:
    pod = pod_of(REAL)

    assert pod == AdmittedPod(
        labels={"app": "spark"},
        annotations={"note": "x"},
        scheduler_name="default-scheduler",
        priority_class_name="koord-prod",
        priority=9500,
        preemption_policy="PreemptLowerPriority",
        init_containers=(Container(name="init", limits={"cpu": 500}, kept=REAL["spec"]["initContainers"][0]),),
        containers=(
            Container(name="main", requests={"cpu": 1_500, "memory": 1_024_000}, limits={"x/gpu": 1},
                      kept=REAL["spec"]["containers"][0]),
            Container(name="side", kept=REAL["spec"]["containers"][1]),
        ),
        overhead={"memory": 2**29},
        kept=REAL,
    )  # fmt: skip


@pytest.mark.parametrize(
    "kubernetes",
    [
        pytest.param(REAL, id="a real one"),
        pytest.param({}, id="nothing"),
        pytest.param({"metadata": None, "spec": None}, id="nulls"),
        pytest.param({"metadata": {}, "spec": {"containers": [], "overhead": {}, "schedulerName": ""}}, id="empty"),
        pytest.param({"metadata": {"labels": None}, "spec": {"initContainers": None, "priority": 0}}, id="inner nulls"),
        pytest.param({"spec": {"containers": [{"name": "a", "resources": {"limits": {}}}]}}, id="an empty amount list"),
    ],
)
def test_what_is_not_changed_is_as_it_was(kubernetes: dict) -> None:
    assert object_of(pod_of(kubernetes)) == kubernetes


def test_only_what_is_changed_is_written_anew() -> None:
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

    assert object_of(changed) == REAL | {
        "metadata": {"generateName": "job-", "annotations": {"note": "x", "more": "y"}, "uid": "u"},
        "spec": {
            "schedulerName": "koord-scheduler",
            "priorityClassName": "koord-batch",
            "priority": 0,
            "containers": [
                {"name": "main", "resources": {"requests": {"memory": "1e3Ki", "kubernetes.io/batch-cpu": "1500"},
                                               "limits": {"x/gpu": "1"}}},
                REAL["spec"]["containers"][1],
            ],
            "overhead": {"kubernetes.io/batch-memory": "512Mi"},
            "terminationGracePeriodSeconds": 30,
        },
    }  # fmt: skip
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


@pytest.mark.parametrize(
    ("kubernetes", "why"),
    [
        pytest.param({"metadata": {"labels": {"a": 1}}}, "Expected `str`, got `int` - at `$.metadata.labels[...]`",
                     id="a number as label"),
        pytest.param({"spec": {"schedulerName": 1}}, "Expected `str | null`, got `int` - at `$.spec.schedulerName`",
                     id="a number as scheduler"),
        pytest.param({"spec": {"containers": {}}}, "Expected `array | null`, got `object` - at `$.spec.containers`",
                     id="no list of containers"),
        pytest.param({"spec": {"overhead": {"cpu": "much"}}}, "'much' is not a quantity such as 500m, 2 or 4Gi",
                     id="no quantity"),
    ],
)  # fmt: skip
def test_what_is_no_pod_is_refused(kubernetes: dict, why: str) -> None:
    with pytest.raises(BadMessageError) as refused:
        pod_of(kubernetes)

    assert str(refused.value) == f"not a Pod: {why}"


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        pytest.param("cpu", 1_500, "1500m", id="part of a core"),
        pytest.param("cpu", 2_000, "2", id="whole cores"),
        pytest.param("cpu", 1_000_000, "1k", id="a thousand cores"),
        pytest.param("cpu", 0, "0", id="none"),
        pytest.param(cases.BATCH_CPU, 250, "250", id="millicores"),
        pytest.param(cases.BATCH_CPU, 12_000, "12k", id="thousands of them"),
        pytest.param(cases.BATCH_CPU, 12_500, "12500", id="not in whole thousands"),
        pytest.param(cases.BATCH_CPU, 3 * 10**18, "3E", id="the largest unit"),
        pytest.param(cases.BATCH_CPU, 3 * 10**21, "3000E", id="beyond it"),
        pytest.param("memory", 1_023, "1023", id="few bytes"),
        pytest.param("memory", 1_000, "1k", id="few bytes in the decimal form"),
        pytest.param("memory", 1_024, "1Ki", id="a kibibyte"),
        pytest.param(cases.MID_MEM, 8 * 2**30, "8Gi", id="gibibytes"),
        pytest.param("memory", 2_000, "2000", id="bytes that are no whole kibibytes"),
        pytest.param("memory", 3 * 2**70, "3072Ei", id="more than the largest unit"),
    ],
)
def test_amounts_are_written_as_kubernetes_writes_them(resource: str, amount: int, text: str) -> None:
    assert quantity_of(resource, amount) == text


@pytest.mark.parametrize(
    ("resource", "quantity", "amount"),
    [
        pytest.param("cpu", "0.5", 500, id="native CPU in millicores"),
        pytest.param("cpu", "0.0001", 1, id="rounded up"),
        pytest.param(cases.BATCH_CPU, "0.5", 1, id="batch CPU is millicores already"),
        pytest.param("a.example/gpu", "2", 2, id="devices as a count"),
        pytest.param("memory", 1_024, 1_024, id="a number for a text"),
    ],
)
def test_quantities_are_read(resource: str, quantity: str | int, amount: int) -> None:
    assert amount_of(resource, quantity) == amount


@given(st.sampled_from(["cpu", "memory", cases.BATCH_CPU, cases.BATCH_MEM]), st.integers(0, 2**63))
def test_an_amount_survives_its_text(resource: str, amount: int) -> None:
    assert amount_of(resource, quantity_of(resource, amount)) == amount


@given(cases.pods)
def test_a_pod_survives_being_an_object(pod: AdmittedPod) -> None:
    read = pod_of(object_of(pod))

    def bare(containers: tuple[Container, ...]) -> list[Container]:
        return [replace(container, kept={}) for container in containers]

    assert bare(read.containers) == bare(pod.containers)
    assert bare(read.init_containers) == bare(pod.init_containers)
    assert replace(read, kept={}, containers=(), init_containers=()) == replace(pod, containers=(), init_containers=())
