"""The demo's pods, groups and policy as plain data: what Kubernetes would say of them."""

import pytest
import yaml

from slacktide.agents.node.cgroup.group_knobs import weight_of
from slacktide.deploy.demo.busy import least, room_mib
from slacktide.deploy.demo.groups import Groups, PodGroup, plan, shares_of
from slacktide.deploy.demo.pods import Form, batch_pods, batch_uids, inventory_yaml, policy_yaml, service_pod
from slacktide.schemas.kubernetes import described
from slacktide.schemas.policy import parse
from slacktide.schemas.qos import is_best_effort
from testbed.snapshots import json_text


def test_the_policy_is_valid_and_limits_only_when_told_to():
    """All that the demo sets is in effect: nothing to remark."""
    on, off = (parse(yaml.safe_load(policy_yaml(suppress=suppress)), "policy.yaml") for suppress in (True, False))

    assert (on.notes, off.notes) == ((), ())
    assert (on.policy.resource_threshold.enable, off.policy.resource_threshold.enable) == (True, False)
    assert (on.policy.resource_qos.policies.cpu, off.policy.resource_qos.policies.cpu) == ("podIdle", "groupIdentity")
    assert on.policy.colocation.metric_aggregate_duration_s == 10


def test_the_batch_requests_what_the_service_leaves_in_either_form():
    """As native CPU it is what a scheduler would still place; as batch CPU it is no native request at all."""
    native, best_effort = batch_pods("burstable", "n", 8000), batch_pods("besteffort", "n", 8000)

    assert service_pod("n", 8000).request_milli + sum(pod.request_milli for pod in native) == 8000
    assert [pod.request_milli for pod in best_effort] == [0, 0]
    assert {pod.uid for pod in native + best_effort + batch_pods("plain", "n", 8000)} == batch_uids(["n"], 8000)
    assert len(batch_uids(["n"], 8000)) == 6
    assert batch_pods("none", "n", 8000) == []


@pytest.mark.parametrize("form", ["besteffort", "plain"])
def test_the_inventory_is_what_kubectl_prints(form: Form, snapshot):
    """A List of the node and its pods; a plain pod requests nothing and is best-effort all the same."""
    pods = [service_pod("demo", 2000), *batch_pods(form, "demo", 2000)]
    assert inventory_yaml(["demo"], 2000, 4 << 30, pods) == snapshot


def test_batch_work_keeps_nothing_before_its_pod_has_a_limit_and_no_more_than_that():
    """What it took before would not fit under a limit that comes later."""
    unlimited_v1, unlimited_v2, container, pod = "9223372036854771712\n", "max\n", str(96 << 20), str(128 << 20)

    assert least([unlimited_v1, unlimited_v2]) is None
    assert least([container, unlimited_v1, pod]) == 96 << 20
    assert room_mib([unlimited_v2], share=1) == 0
    assert room_mib([container, pod], share=2) == 36


def test_the_agent_reads_the_inventory_without_a_remark():
    """Each node finds its own pods in the one list, and batch CPU is a batch request."""
    pods = [pod for node in ("a", "b") for pod in (service_pod(node, 2000), *batch_pods("besteffort", node, 2000))]
    found = described(yaml.safe_load(inventory_yaml(["a", "b"], 2000, 4 << 30, pods)), "inventory.yaml", "b")

    assert (found.facts.name, found.facts.capacity.cpu_milli, found.notes) == ("b", 2000, ())
    assert [pod.uid for pod in found.pods] == [pod.uid for pod in pods if pod.node == "b"]
    assert [is_best_effort(pod) for pod in found.pods] == [False, True, True]
    assert [pod.requests.batch_cpu_milli for pod in found.pods] == [None, 500, 500]


def test_groups_lie_and_weigh_as_the_kubelet_has_it(snapshot):
    """Parents first; a tier weighs what its pods request."""
    pods = [PodGroup(uid="a", tier="burstable", request_milli=1000), PodGroup(uid="b", tier="besteffort")]

    assert json_text(plan(pods, 2000)) == snapshot


def test_version_2_weights_are_the_kubelets_conversion():
    """1 for the least, 39 for a CPU, 10000 for the most."""
    assert [weight_of(shares) for shares in (2, shares_of(1000), 262_144)] == [1, 39, 10_000]


def test_on_version_2_every_group_above_a_leaf_passes_its_controllers_on(tmp_path):
    """Else the groups below would have no cpu.max; a leaf holds processes and must not."""
    (tmp_path / "cgroup.controllers").write_text("cpu memory")
    groups = Groups(tmp_path)
    groups.make([PodGroup(uid="a", tier="burstable", request_milli=1000)], 2000)
    pod = tmp_path / "slacktide-demo/kubepods/burstable/poda"

    for group in (tmp_path, pod.parent.parent.parent, pod.parent.parent, pod.parent, pod):
        assert (group / "cgroup.subtree_control").read_text() == "+cpu +memory"
    assert not (pod / "main/cgroup.subtree_control").exists()
    assert (pod / "cpu.weight").read_text() == "39"
    assert groups.join_files(PodGroup(uid="a", tier="burstable")) == [pod / "main/cgroup.procs"]
