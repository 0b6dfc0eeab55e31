"""Batch resources as an annotation."""

import pytest
from hypothesis import given

from slacktide.schemas.errors import BadMessageError
from slacktide.streams.decisions.admission.admitted_pod import ANNOTATION, AdmittedPod, Asked, read, recorded
from testbed.profile_cases import BATCH_CPU, BATCH_MEM, pod, pods
from testbed.vectors import stated_test

test_cases = stated_test("extended_resource_spec", recorded, read)


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
