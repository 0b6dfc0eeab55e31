"""Checks which fields of a policy have an effect on a machine. Pure."""

from collections.abc import Iterator

from slacktide.deploy.cli.doctor.facts import CgroupFacts
from slacktide.deploy.cli.doctor.finding import Finding, good, warned
from slacktide.deploy.cli.doctor.machine_checks import invalid, to_have_pressure, writable
from slacktide.deploy.runtime.text import count
from slacktide.schemas.errors import ConfigError
from slacktide.schemas.message import Message
from slacktide.schemas.policy import Colocation, Parsed, Policy, ResourceThreshold
from slacktide.schemas.policy.configmap import key_of, path_of
from slacktide.schemas.policy.features import FEATURES, Feature
from slacktide.schemas.policy.idle import above_capacity, unused
from slacktide.schemas.policy.keys import value_at

KNOB_OF = {
    "BECPUSuppress": "cpu-quota",
    "BEMemoryReclaim": "memory-reclaim",
    "CPUBurst": "cpu-burst",
    "CFSQuotaBurst": "cpu-quota",
    "CPUQOS (beClass)": "cpu-weight",
    "CPUQOS idle (beClass)": "cpu-idle",
    "MemoryQOS": "memory-high",
}
"""The knobs of each feature; of a feature per QoS class, for all classes."""
NEEDED = "fields that have an effect"
_IDLE = (
    "set schedIdle to 0, or cpuPolicy to podIdle, which makes each best-effort pod idle instead of their cgroup. Linux "
    "rejects a weight for an idle cgroup (EINVAL), and the kubelet writes one. It logs an error each minute, and does "
    "not start again until the cgroup's cpu.idle is 0"
)


def policy_findings(file: str, parsed: Parsed | ConfigError, cgroups: CgroupFacts, cpus: int) -> Iterator[Finding]:
    """Report all findings of a policy, on a machine with these cgroups and this number of CPUs."""
    if isinstance(parsed, ConfigError):
        yield from invalid("policy.valid", parsed)
        return
    yield good("policy.valid", f"{file}, version {parsed.policy.version}", "a policy that can be published")
    notes = [note.removeprefix(f"{file}: ") for note in parsed.notes if note not in parsed.unknown]
    if notes:
        fields = count(len(notes), "field")
        yield warned("policy.not-built", fields, "only fields that have an effect", "; ".join(notes))
    for note in parsed.unknown:
        key = note.removeprefix(f"{file}: ")
        yield warned("policy.unknown-key", key, "only keys that Slacktide reads", f"correct {file}")
    for idle in unused(parsed.policy):
        where = f"{path_of(idle.strategy, idle.field)} ({idle.source})"
        yield warned("policy.without-effect", where, NEEDED, idle.because)
    for above in above_capacity(parsed.policy):
        where = f"{path_of(above.strategy, above.field)} ({above.source})"
        yield warned("policy.above-capacity", where, "at most 100", above.because)
    yield from _void_here(parsed.policy, cgroups, cpus)
    yield from _unmeasured_here(parsed.policy, cgroups)


def _unmeasured_here(policy: Policy, cgroups: CgroupFacts) -> Iterator[Finding]:
    """Report strategies that learn caps, on a machine that cannot measure its services: a run-queue delay is no PSI."""
    for source, colocation in _strategies(policy, "colocation"):
        if not cgroups.no_stall or not isinstance(colocation, Colocation) or colocation.learned_caps == "off":
            continue
        found = f"{path_of('colocation', 'learned_caps')} {colocation.learned_caps} ({source})"
        advice = (
            f"services on this machine are not measured: {cgroups.no_stall}. Their caps are learned on other nodes "
            f"alone; to measure them here, {to_have_pressure(cgroups.no_stall, cgroups)}"
        )
        yield warned("policy.unmeasured-here", found, "pressure.stall with PSI of cgroups", advice)


def _void_here(policy: Policy, cgroups: CgroupFacts, cpus: int) -> Iterator[Finding]:
    for source, threshold in _strategies(policy, "resource_threshold"):
        if not isinstance(threshold, ResourceThreshold) or not threshold.enable:
            continue
        if threshold.cpu_suppress_policy == "cpuset":
            yield from _by_cpuset(source, threshold.cpuset_cpus_min, cgroups, cpus)
        if threshold.cpu_suppress_signal != "usage" and cgroups.no_stall and cgroups.no_run_delay:
            where = path_of("resource_threshold", "cpu_suppress_signal")
            advice = (
                f"no effect on this machine: {cgroups.no_stall}; {cgroups.no_run_delay}. Best-effort pods are limited "
                f"by CPU use instead; to use pressure, {to_have_pressure(cgroups.no_stall, cgroups)}"
            )
            found = f"{where} {threshold.cpu_suppress_signal} ({source})"
            yield warned("policy.void-here", found, "pressure.stall", advice)
    for feature in FEATURES:
        knob = knob_of(feature)
        void = knob is not None and cgroups.knobs and not writable(cgroups, knob)
        for source, strategy in _strategies(policy, feature.strategy) if void or knob == "cpu-idle" else ():
            if feature.lacks(strategy):
                continue
            if void:
                found = f"{key_of(feature.strategy)}: {feature.name} ({source})"
                advice = f"no effect on this machine: see knob.{knob}"
                yield warned("policy.void-here", found, f"knob.{knob}", advice)
            elif value_at(strategy, "policies.cpu") == "coreSched":
                found = f"{key_of(feature.strategy)}: beClass.cpuQOS.schedIdle 1 ({source})"
                yield warned("policy.idle-weight", found, "a kubelet that can write its weights", _IDLE)


def knob_of(feature: Feature) -> str | None:
    """Return the knob that the feature requires; None: it requires none, or is reported in another way."""
    return KNOB_OF.get("MemoryQOS" if feature.name.startswith("MemoryQOS (") else feature.name)


def _by_cpuset(source: str, cpus_min: int, cgroups: CgroupFacts, cpus: int) -> Iterator[Finding]:
    found = f"{path_of('resource_threshold', 'cpu_suppress_policy')} cpuset ({source})"
    if cpus <= cpus_min:
        advice = (
            f"no CPU set is used here, only the CPU quota: a best-effort CPU set has at least {cpus_min} CPUs, and "
            f"this machine has {cpus}"
        )
        advice += f"; to use a CPU set, lower {path_of('resource_threshold', 'cpuset_cpus_min')}"
        yield warned("policy.cpuset-floor", found, f"more than {cpus_min} CPUs", advice)
    elif cgroups.knobs and not writable(cgroups, "cpu-set"):
        advice = "no effect on this machine: see knob.cpu-set; the CPU quota is used instead"
        yield warned("policy.void-here", found, "knob.cpu-set", advice)


def _strategies(policy: Policy, name: str) -> Iterator[tuple[str, Message]]:
    """Yield the cluster's strategy and each node strategy, with its source."""
    yield "cluster strategy", getattr(policy, name)
    for node in getattr(policy, f"node_{name}"):
        yield f"node strategy {node.name}", node.strategy
