"""Whoever adds up what a pod requests adds up the same: sidecars, pod-level resources, overhead, init containers."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from slacktide.agents.cluster.bridge import job_facts
from slacktide.agents.cluster.scheduler.pod import zoned_pod
from slacktide.agents.kubernetes.objects import Pod
from slacktide.schemas.kubernetes_fields import Container, Needs, Reader
from slacktide.schemas.kubernetes_pod import read_pod
from slacktide.streams.decisions.numa.topology import corrected_request
from slacktide.streams.decisions.resources.node_load import pod_requests
from testbed.scheduler_pods import parsed

amounts = st.fixed_dictionaries(
    {}, optional={"cpu": st.integers(1, 4_000).map(lambda milli: f"{milli}m"), "memory": st.integers(1, 64).map(str)}
)
containers = st.builds(lambda requests: {"name": "c", "resources": {"requests": requests}}, amounts)
inits = st.builds(lambda one, policy: one | policy, containers, st.sampled_from([{}, {"restartPolicy": "Always"}]))


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    whole = draw(st.none() | amounts.filter(bool))
    return {
        "containers": draw(st.lists(containers, min_size=1, max_size=3)),
        "initContainers": draw(st.lists(inits, max_size=3)),
        "overhead": draw(amounts),
        **({"resources": {"requests": whole}} if whole else {}),
    }


def needs_of(spec: dict[str, Any]) -> Needs:
    """By hand, for the rule ``pod_requests``."""
    reader = Reader("pod")

    def container(one: dict[str, Any]) -> Container:
        requests = reader.amounts(one["resources"]["requests"], "")
        return Container(requests=requests, limits={}, sidecar=one.get("restartPolicy") == "Always")

    return Needs(
        containers=[container(one) for one in spec["containers"]],
        inits=[container(one) for one in spec["initContainers"]],
        overhead=reader.amounts(spec["overhead"], ""),
        pod_level=container(spec) if "resources" in spec else None,
    )


@given(specs())
def test_all_readers_of_a_pod_find_one_request(spec: dict[str, Any]) -> None:
    item = {"metadata": {"name": "p", "uid": "u", "namespace": "n"}, "spec": spec | {"nodeName": "node-1"}}
    wanted = read_pod(item).requests
    typed = msgspec.convert(item, Pod)
    placed = parsed(item).asked
    descheduled = read_pod(msgspec.to_builtins(typed))

    assert placed.pod.requests == descheduled.requests == wanted
    assert job_facts.pod_facts(typed, frozenset(), None).cpu_milli == (wanted.cpu_milli or 0)
    guaranteed = zoned_pod(typed, "Guaranteed")
    assert guaranteed is not None
    zoned = corrected_request(guaranteed.pod)
    assert (zoned.get("cpu", 0), zoned.get("memory", 0)) == (wanted.cpu_milli or 0, wanted.mem_bytes or 0)
    ruled = pod_requests(_scaled(needs_of(spec)))
    assert (ruled.cpu_milli, ruled.mem_bytes) == (wanted.cpu_milli or 0, wanted.mem_bytes or 0)


def _scaled(needs: Needs) -> Needs:
    """The rule's CPU is in millicores."""

    def scaled(amounts: Any) -> Any:
        return {field: amount * 1_000 if field == "cpu_milli" else amount for field, amount in amounts.items()}

    def container(one: Container) -> Container:
        return Container(requests=scaled(one.requests), limits={}, sidecar=one.sidecar)

    return Needs(
        containers=[container(one) for one in needs.containers],
        inits=[container(one) for one in needs.inits],
        overhead=scaled(needs.overhead),
        pod_level=needs.pod_level and container(needs.pod_level),
    )
