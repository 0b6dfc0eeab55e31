"""What a system does once: when what it has on the node falls silent, and when batch work fills the memory."""

import time
from pathlib import Path

from bench.koordinator.block import await_offer, forget
from bench.koordinator.pods import BATCH_MILLI, PLACE, Json, Pods, batch
from bench.koordinator.records import Leak, Silence
from bench.koordinator.systems import Start
from bench.koordinator.watch import Watch, held
from bench.rig import Rig
from testbed.cluster.real_koordinator import configure
from testbed.cluster.real_node import RealNode

SILENT_S, BRIEF_SILENT_S = 1_200.0, 30.0
POLICY: Json = {"enable": True, "cpuSuppressPolicy": "cfsQuota"}
"""A CPU set never has fewer than two CPUs, as many as this node may have."""
ABOVE_PCT, MORE_PCT = 6, 6
"""So far above present use is the threshold, and so far beyond it would batch work go."""
FILL_MIB_S = 200
LEAK_S = 120.0
LEAKING, BYSTANDER = "be-leaks", "be-holds"


def policy(**threshold: object) -> Json:
    """The ConfigMap of both."""
    strategy = {"clusterStrategy": POLICY | threshold}
    return {"colocation-config": {"enable": True}, "resource-threshold-config": strategy}


def silence(rig: Rig, node: RealNode, start: Start, proc: Path) -> Silence:
    """End what the node has of a system, and see how long the Node goes on to offer."""
    forget(node)
    with start(rig, node, proc) as system, Watch(node) as watch:
        await_offer(rig, node, watch, system)
        time.sleep(5.0)
        began_s = time.monotonic()
        system.silence()
        while time.monotonic() < began_s + (BRIEF_SILENT_S if rig.brief else SILENT_S):
            if (held(watch.batch_milli, time.monotonic()) or 0) <= BATCH_MILLI:
                return Silence(system.name, time.monotonic() - began_s)
            time.sleep(0.25)
        return Silence(system.name, None)


def memory() -> tuple[int, int]:
    """What the machine has and uses, in MiB."""
    told = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    total, free = (int(told[key].split()[0]) // 1024 for key in ("MemTotal", "MemAvailable"))
    return total, total - free


def leak(rig: Rig, node: RealNode, start: Start, proc: Path, pods: Pods) -> Leak:
    """Let batch work take memory beyond the threshold."""
    forget(node)
    total_mib, used_mib = memory()
    threshold_pct = used_mib * 100 // total_mib + ABOVE_PCT
    most_mib = total_mib * threshold_pct // 100
    configure(node, policy(memoryEvictThresholdPercent=threshold_pct))
    try:
        with start(rig, node, proc) as system, Watch(node) as watch:
            await_offer(rig, node, watch, system)
            rig.say(f"koordinator: {system.name}: batch work fills the memory up to {threshold_pct}% and beyond")
            fill_mib = total_mib * (ABOVE_PCT + MORE_PCT) // 100
            sizes = {BYSTANDER: total_mib // 100, LEAKING: fill_mib}
            for name, mib in sizes.items():
                fills = ("burn", "fill", str(mib), str(FILL_MIB_S))
                pods.start(batch(name, *fills, cpu_milli=100, most_milli=1000, mem_mib=mib * 5 // 4))
            return _watched(node, system.name, most_mib, pods)
    finally:
        pods.remove(LEAKING, BYSTANDER)
        configure(node, policy())


def _watched(node: RealNode, system: str, most_mib: int, pods: Pods) -> Leak:
    began_s, passed_s, above_mib = time.monotonic(), None, 0
    ended: list[str] = []
    gone_s = None
    groups = {name: pods.group(name, "memory") for name in (LEAKING, BYSTANDER)}
    seen: dict[str, Json] = {}
    while time.monotonic() < began_s + LEAK_S and (gone_s is None or time.monotonic() < gone_s + 20):
        used_mib = memory()[1]
        above_mib = max(above_mib, used_mib - most_mib)
        if passed_s is None and used_mib > most_mib:
            passed_s = time.monotonic()
        seen |= {one["metadata"]["name"]: one for one in node.pods(PLACE)}
        for name in set(groups) - set(ended):
            if not _busy(groups[name]):
                ended.append(name)
                gone_s = gone_s or time.monotonic()
        time.sleep(0.05)
    told = _told(node, seen[ended[0]]) if ended else []
    took_s = None if gone_s is None or passed_s is None else gone_s - passed_s
    return Leak(system, ended, took_s, above_mib, told)


def _busy(group: Path) -> bool:
    """Whether more than the pod's pause runs in it."""
    try:
        return sum(len(procs.read_text().split()) for procs in group.rglob("cgroup.procs")) > 1
    except OSError:
        return False


def _told(node: RealNode, pod: Json) -> list[str]:
    """What is known of a pod, as it was last seen."""
    name, status = pod["metadata"]["name"], pod["status"]
    found = [" ".join(filter(None, (status["phase"], status.get("reason"), status.get("message"))))]
    found += [f"{one['type']} {one['reason']}" for one in status["conditions"] if one["type"] == "DisruptionTarget"]
    ends = (one.get("state", {}).get("terminated") for one in status.get("containerStatuses", []))
    found += [f"container {one['reason']} {one['exitCode']}" for one in ends if one]
    events = node.get(f"/api/v1/namespaces/{PLACE}/events?fieldSelector=involvedObject.name={name}")["items"]
    made = {"Scheduled", "Created", "Started", "Pulled"}
    return found + [f"Event {one['reason']}: {one['message']}" for one in events if one["reason"] not in made]
