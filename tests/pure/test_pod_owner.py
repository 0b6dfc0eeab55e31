"""Which service a pod belongs to, by its Kubernetes object: whatever stands in there."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.agents.node.service_times import service_of
from slacktide.schemas.bounds import NODE_CHARS_MAX
from slacktide.schemas.inventory import Pod
from slacktide.schemas.kubernetes_pod import REVISION_HASH, ROLLOUT_HASH, TEMPLATE_HASH, owner_of, read_pod
from slacktide.schemas.service import SERVICE_CHARS_MAX

HASH, ROLLOUT = {TEMPLATE_HASH: "5d4f8c7b9"}, {ROLLOUT_HASH: "6bf9d4"}


def by(kind: object, name: object, *, controller: object = True) -> dict[str, Any]:
    return {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "u", "controller": controller}


@pytest.mark.parametrize(
    ("references", "labels", "owner"),
    [
        ([by("StatefulSet", "db")], {}, "db"),
        ([by("DaemonSet", "logs")], {}, "logs"),
        ([by("Job", "etl-28411200")], {}, ""),
        ([by("CronTab", "etl")], {}, "etl"),
        ([by("ReplicaSet", "web-5d4f8c7b9")], HASH, "web"),
        ([by("ReplicaSet", "web-5d4f8c7b9")], {}, "web-5d4f8c7b9"),
        ([by("ReplicaSet", "web-5d4f8c7b9")], {TEMPLATE_HASH: ""}, "web-5d4f8c7b9"),
        ([by("ReplicaSet", "web-another")], HASH, "web-another"),
        ([by("StatefulSet", "web-5d4f8c7b9")], HASH, "web-5d4f8c7b9"),
        ([by("ReplicaSet", "web-6bf9d4")], ROLLOUT, "web"),
        ([by("ReplicaSet", "web-6bf9d4")], HASH | ROLLOUT, "web"),
        ([by("ReplicaSet", "web-5d4f8c7b9")], HASH | ROLLOUT, "web"),
        ([by("ReplicaSet", "web-another")], HASH | ROLLOUT, "web-another"),
        ([by("StatefulSet", "web-6bf9d4")], ROLLOUT, "web-6bf9d4"),
        ([by("ReplicaSet", f"web-{'a' * 63}")], {TEMPLATE_HASH: "a" * 63}, "web"),
        ([by("ReplicaSet", f"web-{'a' * 64}")], {TEMPLATE_HASH: "a" * 64}, f"web-{'a' * 64}"),
        ([by("Queue", "first", controller=False), by("StatefulSet", "db")], {}, "db"),
        ([by("StatefulSet", "db", controller=False)], {}, ""),
        ([by("Node", "node-1")], {}, ""),
        ([by("ReplicaSet", "x" * NODE_CHARS_MAX)], {}, "x" * NODE_CHARS_MAX),
        ([by("ReplicaSet", "x" * (NODE_CHARS_MAX + 1))], {}, ""),
        ([], {}, ""),
        (None, {}, ""),
        ("web", {}, ""),
        ([7, None, by("StatefulSet", "db")], {}, "db"),
        ([by("StatefulSet", 7)], {}, ""),
        ([by(["ReplicaSet"], "web-5d4f8c7b9")], HASH, ""),
        ([by(None, "web-5d4f8c7b9")], HASH, ""),
        ([by("StatefulSet", "db", controller="true")], {}, ""),
    ],
)
def test_the_owner_is_the_controller_and_a_deployment_or_rollout_instead_of_its_replica_set(
    references: object, labels: dict[str, str], owner: str
) -> None:
    assert owner_of(references, labels) == owner
    metadata = {"name": "a", "namespace": "shop", "uid": "u", "labels": labels, "ownerReferences": references}
    assert read_pod({"metadata": metadata}).owner == owner


@pytest.mark.parametrize(
    ("labels", "template"),
    [
        ({}, ""),
        (HASH, "5d4f8c7b9"),
        (ROLLOUT, "6bf9d4"),
        ({REVISION_HASH: "web-7c9"}, "web-7c9"),
        ({REVISION_HASH: "web-7c9"} | ROLLOUT | HASH, "5d4f8c7b9"),
        ({TEMPLATE_HASH: ""} | ROLLOUT, "6bf9d4"),
        ({TEMPLATE_HASH: "a" * 63}, "a" * 63),
        ({TEMPLATE_HASH: "a" * 64}, ""),
        ({TEMPLATE_HASH: "a" * 64, REVISION_HASH: "web-7c9"}, "web-7c9"),
    ],
)
def test_the_template_is_the_first_hash_that_a_label_can_hold(labels: dict[str, str], template: str) -> None:
    assert read_pod({"metadata": {"name": "a", "uid": "u", "labels": labels}}).template == template


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["kind", "name", "controller", "x"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(ANYTHING)
def test_nothing_that_stands_there_makes_a_pod_unreadable(references: object) -> None:
    assert len(owner_of(references, HASH | ROLLOUT)) <= NODE_CHARS_MAX


def test_a_service_has_its_namespace_and_none_has_a_name_that_no_record_takes() -> None:
    pod = Pod(uid="u", namespace="shop", name="web-1", owner="web")
    assert service_of(pod) == "shop/web"
    assert service_of(Pod(uid="u", namespace="shop", name="alone")) == ""
    longest = Pod(uid="u", namespace="n" * 63, name="a", owner="o" * NODE_CHARS_MAX)
    assert len(service_of(longest)) == SERVICE_CHARS_MAX
    assert service_of(Pod(uid="u", namespace="n" * 64, name="a", owner="o" * NODE_CHARS_MAX)) == ""
