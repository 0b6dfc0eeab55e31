"""Whatever a pod is made of, each rule counts it as a plain pod that Kubernetes would hold for the same amounts.

Sidecars, init containers, overhead, resources of the pod as a whole, huge pages, and a resize that the kubelet has not
done. The amounts are summed here once more, from Kubernetes' documentation.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from slacktide.agents.kubernetes import objects
from slacktide.schemas.inventory import Pod, Resources
from slacktide.schemas.knob import pod_group
from slacktide.schemas.kubernetes_pod import read_pod
from slacktide.schemas.policy.strategies import Colocation
from slacktide.streams.decisions.admission.admitted_pod import object_of, pod_of, translated
from slacktide.streams.decisions.admission.namespace_quota import PREFIX, judged, quotas_of
from slacktide.streams.decisions.evict.evict_tasks import AllocatableThreshold, EvictPod, Measure, by_allocatable
from slacktide.streams.decisions.knobs import isolation
from slacktide.streams.decisions.known_pods import KnownPods
from slacktide.streams.decisions.load.load_aware_estimator import LoadAwareArgs, LoadAwarePod, estimate
from slacktide.streams.decisions.numa.topology import corrected_request
from slacktide.streams.decisions.prediction.mid_forecast import NodePeaks, PredictedPod, prod_reclaimable
from slacktide.streams.decisions.resources.batch_resource import batch_resource, free_resource
from slacktide.streams.decisions.resources.mid_resource import mid_resource
from testbed.node_loads import WHOLE, load, use
from testbed.scheduler_pods import parsed

Amounts = dict[str, int]
"""Millicores of ``cpu``, MiB of ``memory``."""
Json = dict[str, Any]
Rule = Callable[[Pod], object]
TIERS = ("batch", "mid", "free")
SELLING = Colocation(enable=True, mid_unallocated_pct=100, free_class_enable=True)
MEASURES: tuple[Measure, ...] = ("cpu_milli", "mem_bytes")
ABOVE_NOTHING = AllocatableThreshold(threshold_pct=0, lower_pct=-1, priority_max=7_999)


def added(*parts: Mapping[str, int]) -> Amounts:
    return {name: sum(part.get(name, 0) for part in parts) for name in ("cpu", "memory")}


def larger(*parts: Mapping[str, int]) -> Amounts:
    return {name: max(part.get(name, 0) for part in parts) for name in ("cpu", "memory")}


def written(amounts: Mapping[str, int], tier: str = "") -> Json:
    """In Kubernetes' names and units; what is sold by class counts CPU in millicores."""
    units = {"cpu": "" if tier else "m", "memory": "Mi"}
    prefix = f"kubernetes.io/{tier}-" if tier else ""
    return {f"{prefix}{name}": f"{amount}{units[name]}" for name, amount in amounts.items()}


amounts = st.fixed_dictionaries({"cpu": st.integers(1, 900), "memory": st.integers(1, 900)})
containers = st.tuples(amounts, st.none() | amounts)
"""What it asks for, and what the kubelet has allocated to it."""
shapes = st.fixed_dictionaries(
    {
        "main": st.lists(containers, min_size=1, max_size=3),
        "init": st.lists(st.tuples(containers, st.booleans()), max_size=3),
        "overhead": st.just({}) | amounts,
        "whole": st.just({}) | amounts | amounts.map(lambda both: {"cpu": both["cpu"]}),
        "whole_held": st.none() | amounts,
        "huge": st.booleans(),
    }
)


def total(shape: Json, *, resized: bool = True) -> Amounts:
    """What the pod holds, without its overhead: of the pod as a whole, else of what runs together, or once did."""

    def held(container: tuple[Amounts, Amounts | None]) -> Amounts:
        asked, allocated = container
        return allocated if allocated and resized else asked

    sidecars: Amounts = {}
    peak: Amounts = {}
    for container, is_sidecar in shape["init"]:
        peak = larger(peak, added(sidecars, held(container)))
        sidecars = added(sidecars, held(container)) if is_sidecar else sidecars
    whole = {name: held((shape["whole"], shape.get("whole_held")))[name] for name in shape["whole"]}
    return larger(added(sidecars, *map(held, shape["main"])), peak) | whole


def item(shape: Json, tier: str = "") -> Json:
    """The pod as Kubernetes lists it."""

    def container(name: str, asked: Amounts, **more: Any) -> Json:
        has = written(asked, tier) | ({"hugepages-2Mi": "4Mi"} if shape["huge"] else {})
        return {"name": name, "resources": {"requests": has, "limits": has}, **more}

    main = [container(f"main-{place}", asked) for place, (asked, _) in enumerate(shape["main"])]
    init = [
        container(f"init-{place}", asked, **({"restartPolicy": "Always"} if is_sidecar else {}))
        for place, ((asked, _), is_sidecar) in enumerate(shape["init"])
    ]
    spec: Json = {"containers": main, "initContainers": init, "overhead": written(shape["overhead"])}
    if shape["whole"] and not tier:
        spec["resources"] = {"requests": written(shape["whole"]), "limits": written(shape["whole"])}
    status: Json = {"phase": "Running", "qosClass": "BestEffort" if tier else "Burstable"}
    if shape.get("whole_held") and not tier:
        given = written(shape["whole_held"])
        status |= {"resources": {"requests": given, "limits": given}, "allocatedResources": given}
    for kind, name, each in (
        ("containerStatuses", "main", shape["main"]),
        ("initContainerStatuses", "init", [one for one, _ in shape["init"]]),
    ):
        status[kind] = [
            {"name": f"{name}-{place}", "resources": {"requests": written(held), "limits": written(held)}}
            for place, (_, held) in enumerate(each)
            if held and not tier
        ]
    return {"metadata": metadata(tier), "spec": spec, "status": status}


def metadata(tier: str) -> Json:
    labels = {
        "koordinator.sh/qosClass": "LS" if tier in {"", "mid"} else "BE",
        "koordinator.sh/priority-class": f"koord-{tier or 'prod'}",
    }
    return {"name": "p", "uid": "p", "labels": labels}


def plain(holds: Amounts, overhead: Amounts, tier: str = "") -> Pod:
    """One container of these amounts."""
    shape = {"main": [(holds, None)], "init": [], "overhead": overhead, "whole": {}, "huge": False}
    return read_pod(item(shape, tier))


def free(pod: Pod) -> object:
    found = free_resource(load(pod), SELLING)
    return found.cpu_milli, found.mem_bytes


def batch(pod: Pod, policy: str) -> object:
    colocation = Colocation(enable=True, cpu_calculate_policy=policy, mem_calculate_policy=policy)
    found = batch_resource(load(pod), colocation)
    return found.cpu_milli, found.mem_bytes


def mid(pod: Pod) -> object:
    found = mid_resource(load(pod), SELLING, reclaimable=use(), node_use=use())
    return found.cpu_milli, found.mem_bytes


def forecast(pod: Pod) -> object:
    """Of a pod that is predicted to use nothing."""
    quiet = NodePeaks(system=use(), prod=use(), unclassed=use())
    predicted = PredictedPod.of(pod, age_s=10, deleting=False, peak=use())
    found = prod_reclaimable([predicted], quiet, allocatable=WHOLE, cold_start_s=0, safety_margin_pct=10)
    return found.by_pods, found.by_node, found.reclaimable


def limits(pod: Pod) -> object:
    """Those of its own group."""
    return [(one.knob, one.value) for one in isolation([pod], SELLING) if one.group == pod_group(pod.uid)]


def eviction(pod: Pod) -> object:
    """What is to be released where the node sells nothing any more."""
    return [
        by_allocatable("e", measure, allocatable=Resources(), pods=[EvictPod(pod=pod)], at=ABOVE_NOTHING).amounts
        for measure in MEASURES
    ]


def estimated(pod: Pod) -> object:
    return estimate(LoadAwarePod(pod=pod), LoadAwareArgs(free_class_enable=True)).amounts


def asked(pod: Pod) -> object:
    """What figures on Nodes are never below."""
    return KnownPods([pod]).asked


def quota(pod: Pod) -> object:
    none = quotas_of({f"{PREFIX}{tier}-{resource}": "0" for tier in TIERS for resource in ("cpu", "memory")})
    return judged(none, pod.requests, []) if none.concerns(pod.requests) else None


BY_HOLDING: Mapping[str, Rule] = {
    "batch by use": lambda pod: batch(pod, "usage"),
    "batch by requests": lambda pod: batch(pod, "request"),
    "mid": mid,
    "free": free,
    "forecast": forecast,
    "estimate": estimated,
}
BY_BUYING: Mapping[str, Rule] = {
    "limits": limits,
    "eviction": eviction,
    "estimate": estimated,
    "floor": asked,
    "quota": quota,
    "free": free,
}


def counted(rules: Mapping[str, Rule], pod: Pod) -> dict[str, object]:
    return {name: rule(pod) for name, rule in rules.items()}


@given(shapes)
def test_a_production_pod_counts_by_what_it_holds(shape: Json) -> None:
    pod = plain(total(shape), shape["overhead"])

    assert counted(BY_HOLDING, read_pod(item(shape))) == counted(BY_HOLDING, pod)


@given(shapes, st.sampled_from(TIERS))
def test_a_pod_of_a_sold_class_counts_by_what_it_bought(shape: Json, tier: str) -> None:
    """No kubelet resizes what it does not know, and no pod asks for that as a whole."""
    bought = total({**shape, "whole": {}}, resized=False)
    pod = plain(bought, shape["overhead"], tier)

    assert counted(BY_BUYING, read_pod(item(shape, tier))) == counted(BY_BUYING, pod)


@given(shapes, st.sampled_from(TIERS))
def test_the_webhook_keeps_the_sum_and_what_is_no_cpu_and_no_memory(shape: Json, tier: str) -> None:
    """A pod that asks for resources as a whole stays as it is."""
    given_pod = item(shape) | {"metadata": metadata(tier), "status": {}}
    made = object_of(translated(pod_of(given_pod), free_class_enable=True).pod)
    bought = added(total(shape, resized=False), shape["overhead"])
    requests = read_pod(made).requests

    if shape["whole"]:
        assert made == given_pod
    else:
        assert getattr(requests, f"{tier}_cpu_milli") == bought["cpu"]
        assert getattr(requests, f"{tier}_mem_bytes") == bought["memory"] << 20
        assert (requests.cpu_milli, requests.mem_bytes) == (None, None)
    huge = [one["resources"]["limits"].get("hugepages-2Mi") for one in made["spec"]["containers"]]
    assert huge == ["4Mi" if shape["huge"] else None] * len(huge)


@given(shapes)
def test_each_reader_counts_what_the_kubelet_allocated(shape: Json) -> None:
    """Of a pod that is resized in place, as a whole or by container."""
    listed = item(shape)
    listed["status"]["qosClass"] = "Guaranteed"
    holds = added(total(shape), shape["overhead"])
    zoned = parsed(listed).asked.zoned
    descheduled = read_pod(msgspec.to_builtins(msgspec.convert(listed, objects.Pod))).requests

    assert (descheduled.cpu_milli, descheduled.mem_bytes) == (holds["cpu"], holds["memory"] << 20)
    assert zoned is not None
    asked = corrected_request(zoned.pod)
    assert (asked["cpu"], asked["memory"]) == (holds["cpu"], holds["memory"] << 20)
