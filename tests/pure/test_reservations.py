"""Which pod a Reservation is for, when it is over, and what follows for its placeholder and its status."""

from typing import Any

import pytest

from slacktide.streams.decisions.queue.kinds.manifest import Part
from slacktide.streams.decisions.reservation.match import choices, expired, owns
from slacktide.streams.decisions.reservation.objects import (
    Claimant,
    Ref,
    Reservation,
    limits_of,
    requests_of,
    reservation_of,
)
from slacktide.streams.decisions.reservation.step import Opened, Placeholder, manifest, steps

HOUR_S = 3_600.0
NOW_S = 1_764_000_000.0
OWNER = {"labelSelector": {"matchLabels": {"app": "web"}}}


def reservation(
    name: str = "r", *, status: dict[str, Any] | None = None, labels: Any = None, **spec: Any
) -> Reservation:
    container = {"name": "main", "resources": {"requests": {"cpu": "2", "memory": "4Gi"}}}
    template = {"spec": {"schedulerName": "koord-scheduler", "containers": [container]}}
    metadata = {"name": name, "uid": f"uid-{name}", "labels": labels, "creationTimestamp": "2025-11-24T16:00:00Z"}
    given = {"template": template, "owners": [OWNER], **spec}
    return reservation_of(
        {"metadata": metadata, "spec": given, "status": status or {"phase": "Available", "nodeName": "n"}}
    )


def pod(**given: Any) -> Claimant:
    known: dict[str, Any] = {
        "uid": "u", "namespace": "shop", "name": "web-0", "labels": {"app": "web"},
        "owners": (Ref(controller=True, uid="o", name="web", kind="ReplicaSet", api_version="apps/v1"),),
        "requests": {"cpu": 2_000, "memory": 4 * 2**30},
    }  # fmt: skip
    return Claimant(**{**known, **given})


@pytest.mark.parametrize(
    ("owners", "is_owner"),
    [
        ([OWNER], True),
        ([{"labelSelector": {"matchLabels": {"app": "db"}}}], False),
        ([{"labelSelector": {"matchLabels": {"app": "db"}}}, OWNER], True),
        ([{}], True),
        ([], False),
        ([{"object": {"name": "web-0"}}], True),
        ([{"object": {"name": "web-0", "kind": "Job"}}], True),
        ([{"object": {"name": "web-0", "namespace": "other"}}], False),
        ([{"object": {"uid": "u", "apiVersion": "v1"}}], True),
        ([{"object": {"uid": "u", "apiVersion": "v2"}}], False),
        ([{"object": {"name": "web-0"}, "labelSelector": {"matchLabels": {"app": "db"}}}], False),
        ([{"controller": {"name": "web", "kind": "ReplicaSet", "namespace": "shop"}}], True),
        ([{"controller": {"name": "web", "kind": "StatefulSet"}}], False),
        ([{"controller": {"name": "web", "namespace": "other"}}], False),
        ([{"controller": {"uid": "o", "controller": False}}], False),
        ([{"controller": {"apiVersion": "apps/v2"}}], False),
    ],
)
def test_all_that_one_owner_gives_must_be_of_the_pod(owners: list[Any], *, is_owner: bool) -> None:
    assert owns(reservation(owners=owners), pod()) == is_owner


@pytest.mark.parametrize(
    ("ttl", "expires_h", "age_h", "is_over"),
    [
        (None, None, 23, False),
        (None, None, 25, True),
        (None, 30, 25, False),
        (None, 30, 31, True),
        ("24h", 30, 25, False),
        ("24h", None, 25, True),
        ("1h", None, 0.5, False),
        ("1h", None, 2, True),
        ("1h", 30, 2, True),
        ("2h", 1, 1.5, True),
        ("0s", None, 1_000, False),
        ("0s", 1, 1_000, False),
    ],
)
@pytest.mark.parametrize("phase", ["", "Pending", "Available"])
def test_it_is_over_by_its_ttl_or_its_end(
    ttl: str | None, expires_h: float | None, age_h: float, phase: str, *, is_over: bool
) -> None:
    given: dict[str, Any] = {} if ttl is None else {"ttl": ttl}
    one = reservation(status={"phase": phase}, **given)
    if expires_h is not None:
        at = f"2025-11-2{4 + int(16 + expires_h) // 24}T{int(16 + expires_h) % 24:02}:00:00Z"
        one = reservation(status={"phase": phase}, expires=at, **given)
    assert expired(one, one.created_s + age_h * HOUR_S) == is_over


@pytest.mark.parametrize(
    ("claims", "names"),
    [
        ({}, ["a", "b"]),
        ({"affinity": '{"name": "b"}'}, ["b"]),
        ({"affinity": '{"name": "c"}'}, []),
        ({"affinity": '{"reservationSelector": {"pool": "x"}}'}, ["a"]),
        ({"affinity": '{"requiredDuringSchedulingIgnoredDuringExecution": {"reservationSelectorTerms": '
                      '[{"matchExpressions": [{"key": "pool", "operator": "Exists"}]}]}}'}, ["a"]),
        ({"requests": {"cpu": 3_000}}, ["a", "b"]),
        ({"exact": '{"resourceNames": ["cpu"]}'}, ["a", "b"]),
        ({"exact": '{"resourceNames": ["cpu"]}', "requests": {"cpu": 1_000}}, []),
        ({"exact": '{"resourceNames": ["example.com/gpu", "cpu"]}', "requests": {"cpu": 1_000}}, ["a", "b"]),
    ],
)  # fmt: skip
def test_which_reservations_a_pod_may_use(claims: dict[str, Any], names: list[str]) -> None:
    both = [reservation("b"), reservation("a", labels={"pool": "x"})]
    assert [one.name for one in choices(pod(**claims), both)] == names


def test_restricted_takes_no_pod_that_requests_more() -> None:
    strict = reservation(allocatePolicy="Restricted")
    assert choices(pod(requests={"cpu": 2_000, "example.com/gpu": 1}), [strict])
    assert not choices(pod(requests={"cpu": 2_001}), [strict])


def test_the_lowest_order_goes_first_then_what_the_pod_fills_best() -> None:
    label = "scheduling.koordinator.sh/reservation-order"
    container = {"name": "main", "resources": {"requests": {"cpu": "8"}}}
    large = {"spec": {"schedulerName": "koord-scheduler", "containers": [container]}}
    all_of_them = [
        reservation("large", template=large), reservation("small"),
        reservation("second", labels={label: "2"}), reservation("first", labels={label: "1"}),
        reservation("odd", labels={label: "-1"}),
    ]  # fmt: skip
    assert [one.name for one in choices(pod(), all_of_them)] == ["first", "second", "odd", "small", "large"]


def templated(**spec: Any) -> dict[str, Any]:
    return {"template": {"spec": spec}}


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"allocateOnce": False}, "spec.allocateOnce: false"),
        ({"preAllocation": True}, "spec.preAllocation"),
        ({"unschedulable": True}, "spec.unschedulable"),
        ({"taints": [{"key": "a"}]}, "spec.taints"),
        (templated(volumes=[{"name": "v", "hostPath": {"path": "/"}}]), "spec.template.spec.volumes[0]"),
        (templated(resourceClaims=[{"name": "c"}]), "spec.template.spec.resourceClaims"),
        (templated(containers=[{"ports": [{"hostPort": 1}]}]), "spec.template.spec.containers[0].ports"),
        ({"template": {"metadata": {"annotations": {"scheduling.koordinator.sh/device-x": ""}}}}, "spec.template: an"),
        (templated(containers=[{"resources": {"requests": {"cpu": "much"}}}]), ""),
        ({"owners": [{"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}]}, "spec.owners[0]"),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_named(spec: dict[str, Any], path: str) -> None:
    one = reservation(**spec)
    assert one.refused
    assert one.refused.startswith(path)


HELD = Placeholder(uid="p", namespace="default", name="reservation-uid-r", node="n")
OPENED = Opened(pod_uid="u", namespace="shop", name="web-0", there=True, node="", on="n", marked=False)
THERE = Opened(pod_uid="u", namespace="s", name="w", there=True, node="n", on="n", marked=True)
GONE = Opened(pod_uid="u", namespace="s", name="w", there=False, node="", on="n", marked=True)
OVER = {"phase": "Failed", "conditions": [{"lastTransitionTime": "2025-11-22T00:00:00Z"}]}
DELETE = ("delete", "")


@pytest.mark.parametrize(
    ("status", "placeholder", "opened", "acts"),
    [
        ({}, None, None, [("create", ""), ("status", "Pending")]),
        ({"phase": "Pending"}, Placeholder(uid="p", namespace="d", name="x"), None, []),
        ({"phase": "Pending"}, HELD, None, [("status", "Available")]),
        ({"phase": "Available"}, HELD, None, []),
        ({"phase": "Available"}, None, None, [("create", ""), ("status", "Pending")]),
        ({"phase": "Available"}, Placeholder(uid="p", namespace="d", name="x", node="n", leaving=True), None,
         [("status", "Pending")]),
        ({"phase": "Available"}, Placeholder(uid="p", namespace="d", name="x", node="n", ended=True), None,
         [DELETE, ("status", "Pending")]),
        ({"phase": "Available"}, HELD, OPENED, [("mark", ""), DELETE]),
        ({"phase": "Available"}, None, OPENED, [("mark", "")]),
        ({"phase": "Available"}, None, THERE, [("status", "Succeeded")]),
        ({"phase": "Available"}, HELD, GONE, []),
        ({"phase": "Succeeded"}, None, None, []),
        ({"phase": "Failed"}, HELD, None, [DELETE]),
        (OVER, None, None, [("forget", "")]),
    ],
)  # fmt: skip
def test_what_follows(status: dict[str, Any], placeholder: Any, opened: Any, acts: list[tuple[str, str]]) -> None:
    found = steps(reservation(status=status, ttl="0s"), placeholder, opened, "pause", NOW_S)
    assert [(act.kind, act.body.get("phase", "")) for act in found] == acts


def test_one_of_another_scheduler_is_left_alone() -> None:
    other = reservation(template={"spec": {"schedulerName": "other", "containers": []}})
    assert not steps(other, None, None, "pause", NOW_S)


def test_a_placeholder_requests_what_is_reserved_and_has_no_label_of_the_template() -> None:
    containers = [
        {"name": "one", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}},
        {"name": "two", "resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "2"}}},
    ]
    labels = {"app": "web", "koordinator.sh/qosClass": "LSR"}
    spec = {"schedulerName": "koord-scheduler", "nodeName": "n7", "containers": containers}
    made = manifest(reservation(template={"metadata": {"namespace": "shop", "labels": labels}, "spec": spec}), "pause")
    assert made["metadata"]["labels"] == {"koordinator.sh/qosClass": "LSR", "slacktide.io/reservation": "uid-r"}
    [container] = made["spec"]["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "1500m", "memory": str(2**30)}, "limits": {"cpu": "3000m"},
    }  # fmt: skip
    terms = made["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert terms[0]["matchFields"][0]["values"] == ["n7"]


def test_an_init_container_counts_where_it_requests_more() -> None:
    spec = {
        "containers": [{"resources": {"requests": {"cpu": "1"}}}, {"resources": {"requests": {"cpu": "1"}}}],
        "initContainers": [{"resources": {"requests": {"cpu": "3", "memory": "1Gi"}}}],
    }
    assert requests_of(Part(spec)) == {"cpu": 3_000, "memory": 2**30}
    assert limits_of(Part(spec)) == {}
