"""A new pod's admission, from the API server's question to its answer."""

from __future__ import annotations

import base64
from collections import Counter
from typing import Any

import msgspec
import pytest

from slacktide.agents.cluster.webhook import review
from slacktide.agents.cluster.webhook.mutation import Admission, admission, drawn, priority_class_of, profile_of
from slacktide.schemas.errors import BadMessageError
from slacktide.streams.decisions.admission.label_selector import InvalidSelector
from slacktide.streams.decisions.admission.webhook_colocation_profile import PriorityClass

CLASSES = {"koord-batch": PriorityClass(value=5000, preemption_policy="PreemptLowerPriority")}
COLOCATED = {"koordinator.sh/enable-colocation": "true"}


def profile(**spec: Any) -> dict[str, Any]:
    """The quick start's, as the API server gives it."""
    given = {
        "namespaceSelector": {"matchLabels": COLOCATED},
        "selector": {"matchLabels": {"app-type": "batch"}},
        "qosClass": "BE",
        "priorityClassName": "koord-batch",
        "schedulerName": "koord-scheduler",
        "labels": {"koordinator.sh/mutated": "true"},
    }
    metadata = {"name": "batch-workload-profile", "uid": "1"}
    return {"apiVersion": "v1", "kind": "ClusterColocationProfile", "metadata": metadata, "spec": given | spec}


def pod(**labels: str) -> dict[str, Any]:
    asked = {"cpu": "2", "memory": "4Gi"}
    container = {"name": "worker", "image": "x", "resources": {"requests": asked, "limits": asked}}
    spec = {"containers": [container], "schedulerName": "default-scheduler", "priority": 0}
    return {"metadata": {"generateName": "job-", "labels": labels}, "spec": spec}


def request(of: dict[str, Any], operation: str = "CREATE") -> review.Request:
    return review.Request(uid="7f", operation=operation, namespace="batch-demo", object=of)


def admitted(of: dict[str, Any], *profiles: dict[str, Any]) -> Admission:
    return admission(request(of), [profile_of(one) for one in profiles], CLASSES, COLOCATED)


def test_a_pod_that_a_profile_is_for_is_changed_in_these_places_alone() -> None:
    done = admitted(pod(**{"app-type": "batch"}), profile())

    assert done.result == "mutated"
    assert {operation["path"] for operation in done.patch} == {
        "/metadata/labels/koordinator.sh~1mutated",
        "/metadata/labels/koordinator.sh~1qosClass",
        "/metadata/annotations",
        "/spec/schedulerName",
        "/spec/priority",
        "/spec/priorityClassName",
        "/spec/preemptionPolicy",
        *(
            f"/spec/containers/0/resources/{kind}/{name}"
            for kind in ("requests", "limits")
            for name in ("cpu", "memory", "kubernetes.io~1batch-cpu", "kubernetes.io~1batch-memory")
        ),
    }


def test_a_pod_that_no_profile_is_for_stays_as_it_is() -> None:
    assert admitted(pod(), profile()).result == "unchanged"
    assert admission(request(pod(**{"app-type": "batch"})), [profile_of(profile())], CLASSES, {}).result == "unchanged"
    assert admitted(pod(**{"app-type": "batch"}), profile(probability=0, qosClass="LS")).patch == ()


def test_a_profile_that_cannot_be_applied_refuses_the_pod_and_names_itself() -> None:
    done = admitted(pod(**{"app-type": "batch"}), profile(priorityClassName="koord-lost"))

    assert done.result == "refused"
    assert done.refused == ("ClusterColocationProfile batch-workload-profile: there is no PriorityClass koord-lost")


def test_the_annotation_keeps_native_resources_whatever_its_value() -> None:
    kept = profile()
    kept["metadata"]["annotations"] = {"config.koordinator.sh/skip-update-resources": ""}

    done = admitted(pod(**{"app-type": "batch"}), kept)

    assert done.result == "mutated"
    assert not [operation for operation in done.patch if "resources" in operation["path"]]


def test_a_profile_in_dry_run_changes_nothing_and_what_it_would_change_is_reported() -> None:
    dry = profile(labels={}) | {"metadata": {"name": "dry", "annotations": {"slacktide.io/dry-run": "true"}}}
    live = profile(schedulerName="other", qosClass="", priorityClassName="", labels={"a": "b"})
    of = pod(**{"app-type": "batch"})
    both, lost = admitted(of, dry, live), admitted(of, dry | {"spec": {"priorityClassName": "koord-lost"}})

    assert both.patch == admitted(of, live).patch
    assert 'would change /metadata/labels/koordinator.sh~1qosClass "BE", ' in both.dry_run
    assert "/metadata/labels/a" not in both.dry_run
    assert (lost.result, lost.patch) == ("unchanged", ())
    assert lost.dry_run == "ClusterColocationProfile dry: there is no PriorityClass koord-lost"
    assert admitted(pod(), dry).dry_run == ""


def test_draws_are_even_and_a_question_asked_again_is_answered_the_same() -> None:
    draws = Counter(drawn(f"uid-{number}", "p") for number in range(20_000))

    assert set(draws) == set(range(100))
    assert max(draws.values()) < 2 * min(draws.values())
    assert drawn("uid", "p") == drawn("uid", "p") != drawn("uid", "q")


def test_a_selector_that_kubernetes_would_refuse_is_read_as_such() -> None:
    odd = profile_of(profile(selector={"matchExpressions": [{"key": "a", "operator": "In"}]}))

    assert isinstance(odd.selector, InvalidSelector)


@pytest.mark.parametrize(
    ("spec", "place"),
    [
        ({"labels": {"a": 1}}, "$.spec.labels"),
        ({"probability": 1.5}, "$.spec.probability"),
        ({"selector": 3}, "$.spec"),
    ],
)
def test_a_profile_of_another_shape_is_refused_with_the_place(spec: dict[str, Any], place: str) -> None:
    with pytest.raises(BadMessageError, match=place.replace("$", r"\$")):
        profile_of(profile(**spec))


def test_a_priority_class_is_read() -> None:
    read = priority_class_of({"metadata": {"name": "a"}, "value": 5000, "preemptionPolicy": "Never"})

    assert read == PriorityClass(value=5000, preemption_policy="Never")
    with pytest.raises(BadMessageError, match="value"):
        priority_class_of({"metadata": {"name": "a"}})


def test_a_patch_is_answered_as_json_patch_in_base64() -> None:
    patch = ({"op": "add", "path": "/a", "value": "b"},)
    answer = msgspec.json.decode(review.allowed(request({}), patch))

    assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert msgspec.json.decode(base64.b64decode(answer["response"].pop("patch"))) == list(patch)
    assert answer["response"] == {"uid": "7f", "allowed": True, "patchType": "JSONPatch"}


@pytest.mark.parametrize(
    "raw",
    [b"", b"[]", b"{}", b'{"apiVersion":"admission.k8s.io/v1beta1","request":{"uid":"1"}}', b'{"request":{}}', b"\xff"],
)
def test_what_is_no_question_is_refused(raw: bytes) -> None:
    with pytest.raises(BadMessageError, match="AdmissionReview"):
        review.asked(raw)
