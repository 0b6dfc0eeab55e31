"""A pod that claims to be best-effort, and has native requests: the kubelet runs it outside the best-effort group."""

import logging

import msgspec
import pytest

from slacktide.agents.ignored import IGNORED
from slacktide.agents.node.inventory import PodFindings
from slacktide.agents.node.protocol import inventory_of
from slacktide.schemas.inventory import NodeFacts, Pod, Resources
from slacktide.schemas.kubernetes_pod import read_pod
from slacktide.schemas.policy import policy_of
from slacktide.schemas.policy.strategies import Colocation, ResourceThreshold
from slacktide.schemas.qos import claims_in_vain, effective_priority_class, is_best_effort, vain_claim
from slacktide.schemas.sample import Limits, NodeUse, PodUse
from slacktide.streams.analysis.explain.manifest import lint
from slacktide.streams.analysis.explain.node import explain_node
from slacktide.streams.analysis.explain.node_log import node_log
from slacktide.streams.decisions.evict.evict_tasks import EvictPod, Order, best_effort_by_memory
from slacktide.streams.decisions.knobs import isolation
from slacktide.streams.decisions.known_pods import known
from slacktide.streams.decisions.suppress.cpu_suppress import decide
from testbed.chains import Chain
from testbed.samples import BATCH, SERVICE, START_MS, sample
from testbed.vectors import changed, each_row

NATIVE = Resources(cpu_milli=2_000, mem_bytes=1 << 30)
FREE = Pod(
    uid="free", namespace="jobs", name="scan", qos_label="BE", priority=3_500, kube_qos="Burstable", requests=NATIVE
)
SIZE = Resources(cpu_milli=8_000, mem_bytes=16 << 30)
FACTS = NodeFacts(name="node-1", capacity=SIZE, allocatable=SIZE)
ON = policy_of(Colocation(), ResourceThreshold(enable=True, cpu_suppress_policy="cfsQuota"))


@each_row("changes", "vain")
def test_a_claim_is_in_vain_outside_the_group(changes: dict, vain: bool) -> None:  # noqa: FBT001
    pod = changed(FREE, changes)
    [counted] = inventory_of(FACTS, [pod]).pods

    assert (claims_in_vain(pod), counted.unheld) == (vain, vain)
    if vain:
        assert (effective_priority_class(counted), is_best_effort(counted)) == ("koord-prod", False)
        assert (counted.qos_label, counted.priority) == (pod.qos_label, pod.priority), "as written"


@each_row("spec")
def test_a_batch_pod_that_others_gave_native_requests_is_explained(spec: dict) -> None:
    containers = [{"name": "main"} | one for one in spec["containers"]]
    metadata = {"name": "etl", "uid": "u", "labels": {"koordinator.sh/qosClass": "BE"}}
    pod = read_pod({"metadata": metadata, "spec": spec | {"containers": containers, "priority": 5_500}})
    [found] = [one for one in lint(pod, None, None) if one.name == "lint.unheld"]

    assert "the kubelet runs it as Burstable, outside the best-effort group; it is not held back" in found.text
    assert "a LimitRange of the namespace or from the pod's spec.resources" in found.advice


def limit_us(pods: list[Pod], free_milli: int) -> int:
    """What best-effort pods may use beside a service of 1 CPU."""
    uses = [PodUse(uid="ls", cpu_milli=1_000), PodUse(uid="free", cpu_milli=free_milli)]
    held = Limits(be_cfs_quota_us=1_000_000)
    taken = sample(1, use=NodeUse(cpu_milli=1_000 + free_milli), pod_use=uses, limits=held)
    decision = decide(taken, FACTS, pods, ON)
    assert decision.limits is not None
    return decision.limits.be_cfs_quota_us or 0


def test_its_use_is_taken_from_what_best_effort_pods_may_use() -> None:
    """Nothing holds it back: counted as best-effort, it would use what the service needs."""
    pods = list(inventory_of(FACTS, [SERVICE, BATCH, FREE]).pods)

    assert limit_us(pods, 3_000) == limit_us(pods, 0) - 300_000


def test_what_it_asked_for_is_not_sold_to_batch_pods() -> None:
    high = known(inventory_of(FACTS, [FREE]).pods).high

    assert (high.uids, list(high.cpu_milli)) == (("free",), [2_000])


def test_lint_names_it_by_its_file_and_as_a_node_lists_it() -> None:
    for pod in (FREE, *inventory_of(FACTS, [FREE]).pods):
        found = {one.name: one for one in lint(pod, None, None)}

        assert found["lint.unheld"].severity == "problem"
        assert found["lint.unheld"].text == (
            "claims QoS class BE and priority class koord-free, and has native requests or limits: the kubelet runs it "
            "as Burstable, outside the best-effort group; it is not held back, never evicted, and counts as koord-prod"
        )
        assert "lint.class" not in found


def test_explain_of_its_node_names_it_and_what_it_uses() -> None:
    chain = Chain(pods=list(inventory_of(FACTS, [SERVICE, BATCH, FREE]).pods))
    uses = [PodUse(uid="ls", cpu_milli=500), PodUse(uid="free", cpu_milli=1_250)]
    now_ms = chain.run(1, 3, pod_use=uses)
    told = explain_node(node_log(chain.node, chain.records), now_ms or START_MS + 3_100)
    [found] = [one for one in told.findings if one.name == "pods.unheld"]

    assert found.severity == "problem"
    assert found.text == (
        "not limited: jobs/scan: they are labelled best-effort or request batch resources, but run outside the "
        "best-effort cgroup; they use 1,250m of CPU, and count as koord-prod"
    )


def test_each_is_reported_once_as_long_as_it_is_there(caplog: pytest.LogCaptureFixture) -> None:
    class Notes:
        def __init__(self) -> None:
            self.noted: list[tuple[str, str, str]] = []

        def note(self, pod: Pod, *, node: str, reason: str, text: str, at_ms: int, once: str = "") -> None:
            assert (node, at_ms) == ("node-1", 7)
            self.noted.append((pod.name, reason, text))

    notes = Notes()
    unheld = PodFindings("node-1", notes, lambda: 7)
    with caplog.at_level(logging.WARNING):
        for pods in ([SERVICE, BATCH], [SERVICE, FREE], [FREE], [msgspec.structs.replace(FREE, phase="Succeeded")]):
            unheld.look(pods)

    [(name, reason, text)] = notes.noted
    assert (name, reason) == ("scan", "NotHeldBack")
    assert text.startswith(vain_claim(FREE))
    assert [one.getMessage() for one in caplog.records] == [f"pod jobs/scan {text}"]

    notes.noted.clear()
    counted = IGNORED.labels("pods", "field")
    before = counted._value.get()
    for ignored in (["a", "b"], ["b", "a"], ["b"], ["b", "c"], ["c"]):
        unheld.look([msgspec.structs.replace(SERVICE, ignored=ignored)])
    assert [text for _, _, text in notes.noted] == ["a", "b", "c"], "an Event once per text while it stays"
    assert counted._value.get() - before == 3


@each_row("qos_label", "priority_class_label", "claimed")
@pytest.mark.parametrize("tier", ["batch", "free"])
def test_who_asks_for_resources_that_can_be_taken_back_is_held_and_evicted_as_best_effort(
    qos_label: str | None, priority_class_label: str | None, claimed: str, tier: str
) -> None:
    named = (priority_class_label or "").replace("batch", tier) or None
    claimed = claimed.replace("koord-batch", f"koord-{tier}")
    pod = msgspec.structs.replace(
        BATCH,
        qos_label=qos_label,
        priority_class_label=named,
        requests=Resources(**{f"{tier}_cpu_milli": 1_000, f"{tier}_mem_bytes": 1 << 30}),
        cpuset="0-1",
    )
    [held] = inventory_of(FACTS, [pod]).pods
    victims = best_effort_by_memory([EvictPod(pod=held, used=1)], feature="BEMemoryEvict", order=Order())
    knobs = {one.knob for one in isolation([held], Colocation(enable=True))}
    [found] = [one for one in lint(held, None, None) if one.name == "lint.overruled"]

    assert [one.pod.uid for one in victims] == [pod.uid]
    assert "cpu_shares" in knobs
    assert (effective_priority_class(held), held.overruled) == (f"koord-{tier}", claimed)
    assert found in list(lint(pod, None, None)), "the file says the same as its node"
    assert found.text.startswith(f"claims {claimed}, and requests {tier} resources")
    [again] = inventory_of(FACTS, [held]).pods
    assert again == held
