"""Pods that were created past the webhook: which are found, and which are not taken for such."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from slacktide.agents.cluster.webhook.missed import StoredPod, changed_ms, dated, lacked, namespace_of
from slacktide.agents.cluster.webhook.scanner import label_selector
from slacktide.schemas.missed_pod import LackedMark
from slacktide.schemas.policy.selector import Requirement, Selector

BEFORE, THEN, AFTER = (f"2026-11-21T10:00:0{second}Z" for second in (1, 2, 3))
PROFILE = {
    "selector": {"matchLabels": {"app-type": "batch"}},
    "qosClass": "BE",
    "priorityClassName": "koord-batch",
    "labels": {"koordinator.sh/mutated": "true"},
}
MARKED = {"app-type": "batch", "koordinator.sh/qosClass": "BE", "koordinator.sh/mutated": "true"}


def item(name: str, *, at: str = BEFORE, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "creationTimestamp": at}, "spec": spec}


def pod(labels: dict[str, str], *, at: str = AFTER, **spec: Any) -> StoredPod:
    metadata = {"uid": "u", "namespace": "demo", "name": "p", "labels": labels, "creationTimestamp": at}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": {"phase": "Running"}}, StoredPod)


def fields(found: list[LackedMark]) -> list[str]:
    return [one.field for one in found]


def seek(of: StoredPod, *profiles: dict[str, Any], namespace: dict[str, Any] | None = None) -> list[LackedMark]:
    return lacked(of, namespace_of(namespace or item("demo")), [dated(one) for one in profiles])


def test_a_pod_that_came_past_lacks_what_its_profile_sets() -> None:
    found = seek(pod({"app-type": "batch"}, schedulerName="default-scheduler"), item("p", **PROFILE))

    assert fields(found) == [
        "metadata.labels[koordinator.sh/mutated]",
        "metadata.labels[koordinator.sh/qosClass]",
        "spec.priorityClassName",
    ]
    assert found[1] == LackedMark(
        profile="p", field="metadata.labels[koordinator.sh/qosClass]", wanted="BE", found=None
    )


def test_a_pod_that_the_webhook_changed_lacks_nothing() -> None:
    assert seek(pod(MARKED, priorityClassName="koord-batch"), item("p", **PROFILE)) == []


def test_a_pod_that_no_profile_is_for_lacks_nothing() -> None:
    elsewhere = {"namespaceSelector": {"matchLabels": {"team": "data"}}}

    assert seek(pod({"app": "web"}), item("p", **PROFILE)) == []
    assert seek(pod({"app-type": "batch"}), item("p", **PROFILE | elsewhere)) == []
    assert lacked(pod({"app-type": "batch"}), None, [dated(item("p", **PROFILE))]) == []


@pytest.mark.parametrize("at", [BEFORE, THEN])
def test_a_pod_is_not_judged_by_what_was_said_after_it(at: str) -> None:
    old = pod({"app-type": "batch"}, at=at)

    assert seek(old, item("p", at=THEN, **PROFILE)) == []
    assert seek(old, item("p", **PROFILE), namespace=item("demo", at=THEN)) == []


def test_a_change_counts_and_a_change_of_status_does_not() -> None:
    changed = item("p")
    changed["metadata"]["managedFields"] = [{"time": THEN}, {"time": AFTER, "subresource": "status"}]

    assert changed_ms(changed) - changed_ms(item("p")) == 1_000


def test_the_last_profile_by_name_has_its_say() -> None:
    other = {"selector": PROFILE["selector"], "qosClass": "LS"}
    found = seek(pod(MARKED, priorityClassName="koord-batch"), item("a", **PROFILE), item("b", **other))

    assert [(one.profile, one.wanted, one.found) for one in found] == [("b", "LS", "BE")]


def test_what_a_draw_may_have_left_out_is_not_asked_for() -> None:
    assert seek(pod({"app-type": "batch"}), item("p", **PROFILE, probability="30%")) == []
    later = item("q", selector=PROFILE["selector"], qosClass="LS", probability=50)
    assert "metadata.labels[koordinator.sh/qosClass]" not in fields(
        seek(pod({"app-type": "batch"}), item("p", **PROFILE), later)
    )


def test_what_is_made_of_other_values_is_not_asked_for() -> None:
    mapped = {
        "labels": {"a": "1", "b": "1", "c": "1"},
        "annotations": {"d": "1", "e": "1"},
        "labelKeysMapping": {"x": "a"},
        "labelSuffixes": {"b": "-2"},
        "annotationKeysMapping": {"x": "d"},
        "patch": {"metadata": {"labels": {"c": "9"}}, "spec": {"schedulerName": "other"}},
        "schedulerName": "koord-scheduler",
    }

    assert fields(seek(pod({}), item("p", **mapped))) == ["metadata.annotations[e]"]


def test_a_profile_that_anothers_label_brought_in_is_not_asked_for() -> None:
    """Profiles are matched by the labels that a pod came with: the second one never saw this pod."""
    first = item("a", selector={"matchLabels": {"team": "data"}}, labels={"app-type": "batch"})

    assert seek(pod({"team": "data", "app-type": "batch"}), first, item("b", **PROFILE)) == []


@pytest.mark.parametrize(
    ("requirement", "text"),
    [
        (Requirement(key="a", operator="In", values=("1", "2")), "a in (1,2)"),
        (Requirement(key="a", operator="NotIn", values=("1",)), "a notin (1)"),
        (Requirement(key="a", operator="Exists"), "a"),
        (Requirement(key="a", operator="DoesNotExist"), "!a"),
    ],
)
def test_a_requirement_is_written_as_the_api_server_reads_it(requirement: Requirement, text: str) -> None:
    assert label_selector(Selector(match_expressions=(requirement,))) == text


def test_all_requirements_are_asked_for_together() -> None:
    both = Selector(match_labels={"a": "1", "b": "2"}, match_expressions=(Requirement(key="c", operator="Exists"),))

    assert label_selector(both) == "a=1,b=2,c"
