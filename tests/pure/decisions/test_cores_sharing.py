"""On which CPUs each pod of a node runs, where some have CPUs of their own."""

from typing import Any

import msgspec

from slacktide.schemas.inventory import Container, NodeFacts, Pod, Processor, Resources
from slacktide.schemas.knob import pod_group
from slacktide.schemas.policy import Policy
from slacktide.schemas.sample import Drift, Limits
from slacktide.streams.decisions.cores.sharing import RULE, cpusets
from slacktide.streams.decisions.cores.take import readable
from slacktide.streams.decisions.knobs import RELEASED, changes, drift_settings
from slacktide.streams.decisions.suppress.cpu_suppress import lifted
from slacktide.streams.decisions.suppress.cpu_suppress_cpuset import off_exclusive
from testbed.vectors import each_row

SYSTEM_QOS = "node.koordinator.sh/system-qos-resource"


def node(cpus: int = 8, **said: Any) -> NodeFacts:
    """A node of cores of two CPUs, half of them in each of two sockets."""
    half = cpus // 2
    processors = [
        Processor(cpu=cpu, core=cpu % half, socket=cpu % half * 2 // half, numa_node=cpu % half * 2 // half)
        for cpu in range(cpus)
    ]
    return NodeFacts(name="n", capacity=Resources(), allocatable=Resources(), processors=processors, **said)


def pod(uid: str, qos: str | None = "LS", cpuset: str = "", cpu_milli: int | None = None, **said: Any) -> Pod:
    """It requests as many CPUs as it has for itself, if nothing else is said."""
    requests = Resources(cpu_milli=1_000 * len(readable(cpuset)) if cpu_milli is None else cpu_milli)
    known = {"kube_qos": "Burstable", "requests": requests} | said
    return Pod(uid=uid, namespace="a", name=uid, qos_label=qos, cpuset=cpuset, **known)


LSE, LSR = pod("lse", "LSE", "0"), pod("lsr", "LSR", "1,5")


def given(facts: NodeFacts, *pods: Pod) -> dict[str, tuple[str, str]]:
    """By uid the CPUs and the bound."""
    return {one.group.removeprefix("pod/"): (str(one.value), one.bound) for one in cpusets(facts, pods)}


@each_row("pods", "cpus")
def test_each_class_gets_its_cpus(pods: list[dict[str, Any]], cpus: dict[str, tuple[str, str]]) -> None:
    assert given(node(), *(pod(**one) for one in pods)) == cpus


def test_the_system_class_has_a_pool_of_its_own_where_the_node_reserves_one() -> None:
    facts = node(annotations={SYSTEM_QOS: '{"cpuset": "7"}'})
    assert given(facts, pod("s", "SYSTEM"), pod("ls")) == {"s": ("7", "system"), "ls": ("0-6", "shared")}

    shared = node(annotations={SYSTEM_QOS: '{"cpuset": "7", "cpusetExclusive": false}'})
    assert given(shared, pod("s", "SYSTEM"), pod("ls")) == {"s": ("7", "system")}
    equal = node(annotations={SYSTEM_QOS: '{"cpuset": "2-7", "cpusetExclusive": false}'})
    owner = pod("lsr", "LSR", "0-1")
    assert given(equal, owner, pod("ls")) == {"lsr": ("0-1", "own"), "ls": ("2-7", "shared")}
    torn = node(annotations={SYSTEM_QOS: '{"cpuset": "7-"}'})
    assert given(torn, pod("s", "SYSTEM"), LSE) == {"s": ("1-3,5-7", "shared"), "lse": ("0", "own")}


def limited(milli: int | None, *names: str, **said: Any) -> Pod:
    """An LSR pod of CPU 1, whose containers have this limit each."""
    limits = Resources(cpu_milli=milli)
    whole = Resources(cpu_milli=milli and milli * len(names))
    said = {"containers": [Container(name=name, limits=limits) for name in names], "limits": whole} | said
    return pod("p", **{"qos": "LSR", "cpuset": "1"} | said)


@each_row("milli", "names", "said", "lifted")
def test_cpus_of_its_own_replace_the_quota_of_a_pod_with_one_container(
    milli: int | None, names: list[str], said: dict[str, Any], lifted: dict[str, int]
) -> None:
    owner = limited(milli, *names, **said)
    quotas = [one for one in cpusets(node(), [owner, pod("ls"), LSE]) if one.knob == "cfs_quota_us"]
    assert {one.group: one.terms["limit_us"] for one in quotas} == lifted
    assert all((one.value, one.rule, one.bound) == (None, RULE, "own") for one in quotas)


def test_a_quota_goes_after_the_pod_has_its_cpus_and_comes_back_before_it_leaves_them() -> None:
    owner = limited(1_000, "main")
    groups = [("pod/p", "cpus", None), ("pod/p/main", "cfs_quota_us", 100_000), ("pod/p", "cfs_quota_us", 100_000)]
    drift = [Drift(group=group, knob=knob, held=held) for group, knob, held in groups]
    settings = drift_settings(drift, node(), [owner], Policy(version="p"))
    assert [(one.group, one.knob, one.value) for one in settings] == [
        ("pod/p", "cpus", "1"), ("pod/p", "cfs_quota_us", None), ("pod/p/main", "cfs_quota_us", None),
    ]  # fmt: skip

    back = [msgspec.structs.replace(one, held="1" if one.knob == "cpus" else None) for one in drift]
    settings = changes(back, {}, [owner])
    assert [(one.group, one.knob, one.value) for one in settings] == [
        ("pod/p/main", "cfs_quota_us", 100_000), ("pod/p", "cfs_quota_us", 100_000), ("pod/p", "cpus", None),
    ]  # fmt: skip


def test_a_node_of_192_cpus_is_divided_like_any_other() -> None:
    facts = node(192)
    assert given(facts, pod("lse", "LSE", "0-10,96-106"), pod("ls")) == {
        "lse": ("0-10,96-106", "own"),
        "ls": ("11-95,107-191", "shared"),
    }


def test_others_make_way_before_the_pod_gets_its_cpus_and_spread_only_after_it_is_gone() -> None:
    pods = [LSE, pod("a"), pod("b")]
    drift = [Drift(group=pod_group(one.uid), knob="cpus", held=None) for one in pods]
    settings = drift_settings(drift, node(), pods, Policy(version="p"))
    assert [(one.group, one.value, one.rule) for one in settings] == [
        ("pod/a", "1-3,5-7", RULE), ("pod/b", "1-3,5-7", RULE), ("pod/lse", "0", RULE),
    ]  # fmt: skip

    left = [msgspec.structs.replace(one, held="1-3,5-7") for one in drift[1:]]
    settings = drift_settings(left, node(), pods[1:], Policy(version="p"))
    assert [(one.group, one.value, one.rule) for one in settings] == [
        ("pod/a", None, RELEASED), ("pod/b", None, RELEASED),
    ]  # fmt: skip


def test_best_effort_pods_lose_the_whole_core_of_an_lse_pod_at_once_and_those_of_an_lsr_pod_never() -> None:
    limits = Limits(be_cfs_quota_us=None, be_cpuset=list(range(8)))
    assert off_exclusive(limits, node(), [LSE]).be_cpuset == [1, 2, 3, 5, 6, 7]
    assert off_exclusive(limits, node(), [LSR]) is limits
    assert off_exclusive(limits, node(), [msgspec.structs.replace(LSE, phase="Succeeded")]) is limits
    assert lifted(limits, node(), [LSE, LSR]).be_cpuset == [1, 2, 3, 5, 6, 7]
