"""Batch resources as an annotation."""

import pytest
from hypothesis import given

from slacktide.schemas.errors import BadMessageError
from slacktide.streams.decisions.admission.admitted_pod import AdmittedPod
from slacktide.streams.decisions.admission.pod_resource_translation import ANNOTATION, Asked, read, recorded
from slacktide.streams.decisions.because import Because
from testbed.profile_cases import BATCH_CPU, BATCH_MEM, GIB, MID_CPU, container, pod, pods


def asks(name: str, requests: dict | None = None, limits: dict | None = None):
    return container(name, requests=requests or {}, limits=limits or {})


@pytest.mark.parametrize(
    ("containers", "text"),
    [
        pytest.param(
            [asks("z", {BATCH_CPU: 1_000, BATCH_MEM: GIB}, {BATCH_CPU: 1_500}), asks("a", {BATCH_MEM: 5})],
            '{"containers":{"a":{"requests":{"kubernetes.io/batch-memory":"5"}},'
            '"z":{"limits":{"kubernetes.io/batch-cpu":"1500"},'
            '"requests":{"kubernetes.io/batch-cpu":"1k","kubernetes.io/batch-memory":"1Gi"}}}}',
            id="containers by name, requests and limits",
        ),
        pytest.param(
            [asks("a", {BATCH_CPU: 1, "cpu": 5, MID_CPU: 7}), asks("b", {MID_CPU: 7}), asks("c")],
            '{"containers":{"a":{"requests":{"kubernetes.io/batch-cpu":"1"}}}}',
            id="nothing but batch resources",
        ),
        pytest.param(
            [asks("a", limits={BATCH_CPU: 0})],
            '{"containers":{"a":{"limits":{"kubernetes.io/batch-cpu":"0"}}}}',
            id="also of 0",
        ),
    ],
)
def test_what_is_recorded(containers: list, text: str) -> None:
    """In the order and form of the reference, so that the same pod has the same text."""
    given_pod = pod(containers=tuple(containers), annotations={"note": "x"})

    assert recorded(given_pod).pod.annotations == {"note": "x", ANNOTATION: text}


def test_init_containers_and_overhead_are_not_recorded() -> None:
    given_pod = pod(containers=(), init_containers=(asks("init", {BATCH_CPU: 1}),), overhead={BATCH_CPU: 1})

    assert recorded(given_pod).pod == given_pod


@pytest.mark.parametrize(
    ("before", "containers", "after", "bound"),
    [
        pytest.param(None, [asks("a")], None, "absent", id="none is added for nothing"),
        pytest.param('{"containers":{"a":{}}}', [asks("a")], "{}", "emptied", id="one that exists is emptied"),
        pytest.param(
            "{}", [asks("a", {BATCH_CPU: 1})],
            '{"containers":{"a":{"requests":{"kubernetes.io/batch-cpu":"1"}}}}', "recorded", id="or replaced",
        ),
    ],
)  # fmt: skip
def test_an_annotation_that_exists(before: str | None, containers: list, after: str | None, bound: str) -> None:
    annotations = {} if before is None else {ANNOTATION: before}
    done = recorded(pod(containers=tuple(containers), annotations=annotations))

    assert done.pod.annotations.get(ANNOTATION) == after
    count = sum(1 for one in containers if one.requests)
    assert done.because == Because(of="extended_resource_spec", bound=bound, terms={"containers_count": count})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("{}", {}, id="empty"),
        pytest.param("null", {}, id="null"),
        pytest.param('{"containers": null, "more": 1}', {}, id="null within, and a field it does not know"),
        pytest.param('{"containers": {"a": null, "b": {"limits": null}}}', {"b": Asked()}, id="nulls further within"),
        pytest.param(
            '{"containers": {"a": {"requests": {"kubernetes.io/batch-cpu": "1k", "cpu": 0.5, "x": null},'
            ' "limits": {"kubernetes.io/batch-memory": "1Gi"}}}}',
            {"a": Asked(requests={BATCH_CPU: 1_000, "cpu": 500, "x": 0}, limits={BATCH_MEM: GIB})},
            id="quantities of any resource",
        ),
    ],
)
def test_an_annotation_is_read_as_kubernetes_reads_it(text: str, expected: dict) -> None:
    assert read(text) == expected
    assert ANNOTATION in recorded(pod(annotations={ANNOTATION: text})).pod.annotations


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("{", id="no JSON"),
        pytest.param("[]", id="a list"),
        pytest.param('{"containers": []}', id="no map of containers"),
        pytest.param('{"containers": {"a": {"limits": {"x": true}}}}', id="no amount"),
        pytest.param('{"containers": {"a": {"limits": {"x": "much"}}}}', id="no quantity"),
        pytest.param('{"x":' * 5_000, id="without end"),
        pytest.param("\ud800", id="no text"),
    ],
)
def test_an_annotation_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(BadMessageError, match=f"^not a readable annotation {ANNOTATION}: "):
        recorded(pod(annotations={ANNOTATION: text}))


@given(pods)
def test_what_is_recorded_can_be_read_back(given_pod: AdmittedPod) -> None:
    """And recording again changes nothing."""
    done = recorded(given_pod)

    def batch(amounts: dict) -> dict:
        return {name: amount for name, amount in amounts.items() if name in (BATCH_CPU, BATCH_MEM)}

    expected = {one.name: Asked(requests=batch(one.requests), limits=batch(one.limits)) for one in given_pod.containers}
    assert read(done.pod.annotations.get(ANNOTATION, "{}")) == {
        name: asked for name, asked in expected.items() if asked != Asked()
    }
    assert recorded(done.pod).pod == done.pod
