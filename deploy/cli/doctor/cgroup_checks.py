"""Checks whether best-effort pods can be found and limited on this machine. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from slacktide.agents.node.ahead.pressure import NO_GROUPS
from slacktide.agents.node.ahead.psi import UNPRIVILEGED
from slacktide.deploy.cli.doctor.controllers import CONTROLLERS, Controller
from slacktide.deploy.cli.doctor.facts import CgroupFacts, KnobFacts
from slacktide.deploy.cli.doctor.finding import Finding, failed, good, warned
from slacktide.schemas.knob_table import CONTROLS, KNOBS, Control


def cgroup_findings(facts: CgroupFacts) -> Iterator[Finding]:
    """Check from the mount down to each knob. Checks below a missing part are skipped."""
    yield _version(facts)
    if not facts.version:
        return
    if facts.driver != "none":
        yield _pods(facts)
    if facts.pods:
        yield _best_effort(facts)
    for controller in CONTROLLERS:
        yield _controller(controller, facts)
    for knob in CONTROLS:
        if knob.name in facts.knobs:
            yield _knob(knob, facts.knobs[knob.name], facts)
    if facts.best_effort:
        yield from _idle_tier(facts)
        yield _pressure(facts)
        yield _stall(facts)


def writable(facts: CgroupFacts, knob: str) -> bool:
    """Return whether a knob could be used."""
    return knob in facts.knobs and facts.knobs[knob].state == "writable"


def _version(facts: CgroupFacts) -> Finding:
    check, needed = "cgroup.version", "v1 or v2"
    if not facts.version:
        return failed(check, f"none at {facts.mount}", needed, facts.trouble)
    name = "v1, with v2 beside it (hybrid)" if facts.hybrid else f"v{facts.version}"
    return good(check, f"{name}, at {facts.mount}", needed)


def _pods(facts: CgroupFacts) -> Finding:
    check, needed = "cgroup.pods", "the group that holds the pods"
    if not facts.pods:
        return failed(check, "none", needed, facts.trouble)
    return good(check, f"{facts.pods}, driver {facts.driver}", needed)


def _best_effort(facts: CgroupFacts) -> Finding:
    check, needed = "cgroup.best-effort", "the group that is held"
    if not facts.best_effort and facts.driver == "none":
        advice = "nothing is held back before it is there: start its slice unit, and keep it started"
        return warned(check, "not there now", needed, advice)
    if not facts.best_effort:
        advice = "the kubelet makes it when it starts (cgroupsPerQOS): does it run, and is --kubepods its group?"
        return failed(check, f"none below {facts.pods}", needed, advice)
    return good(check, facts.best_effort, needed)


def _idle_tier(facts: CgroupFacts) -> Iterator[Finding]:
    if not facts.idle_tier:
        return
    weight = KNOBS["cpu_shares"].files(facts.version)[0]
    advice = (
        f"a kubelet that restarts ends: Linux refuses its write of {weight} (EINVAL). Have cpuPolicy podIdle, "
        f"which makes pods idle instead; without an agent, write 0 to {facts.best_effort}/cpu.idle"
    )
    yield warned("cgroup.idle-tier", "cpu.idle is 1", "a best-effort group that takes the kubelet's weight", advice)


def _controller(controller: Controller, facts: CgroupFacts) -> Finding:
    check, state = f"controller.{controller.name}", facts.controllers[controller.name]
    wrong = failed if controller.required else warned
    if state == "usable":
        return good(check, state, controller.needed)
    if state == "absent":
        return wrong(check, state, controller.needed, _to_have(controller.name, facts))
    if not facts.best_effort:  # no cgroup to delegate it to, which is reported already
        return good(check, "there", controller.needed)
    found = "not handed on to the best-effort group"
    return wrong(check, found, controller.needed, _to_hand_on(controller.name, facts))


def _to_have(name: str, facts: CgroupFacts) -> str:
    if facts.version == 1:
        return f"mkdir {facts.mount}/{name} && mount -t cgroup -o {name} {name} {facts.mount}/{name}"
    if name == "freezer":
        return "use kernel 5.2 or newer"
    return "use a kernel that was built with it, without cgroup_disable= on its command line or a v1 mount that has it"


def _to_hand_on(name: str, facts: CgroupFacts) -> str:
    if facts.driver == "none" and facts.version == 1 and name in ("cpuset", "freezer"):
        return "on cgroup v1 systemd makes no groups in this hierarchy; use cgroup v2"
    if facts.driver == "none":
        return (
            "have CPUWeight=, MemoryAccounting=yes or AllowedCPUs= in the slice's unit, for cpu, memory and cpuset: "
            "systemd hands on what a unit asks for"
        )
    if facts.version == 2:
        return (
            f"write +{name} to cgroup.subtree_control of each group from {facts.mount} to {facts.pods} (the kubelet's)"
        )
    return f"the kubelet makes a group in each hierarchy: is {name} mounted where it looks?"


def _knob(knob: Control, found: KnobFacts, facts: CgroupFacts) -> Finding:
    check, wrong = f"knob.{knob.name}", failed if knob.required else warned
    files = ", ".join(found.files)
    if found.state == "writable":
        return good(check, f"{files} writable", knob.needed)
    if not found.files:
        advice = f"cgroup v{facts.version} has none: what needs it does nothing here; cgroup v2 has it"
        return wrong(check, "none", knob.needed, advice)
    if found.state == "absent":
        controller = facts.controllers[knob.controller]
        advice = knob.absent if controller == "usable" else f"see controller.{knob.controller}"
        return wrong(check, f"no {files}", knob.needed, advice)
    advice = f"run as root; in a container, privileged or with {facts.mount} mounted read-write"
    return wrong(check, f"{files} not writable: {found.trouble}", knob.needed, advice)


def _pressure(facts: CgroupFacts) -> Finding:
    check, needed = "pressure.groups", "to sample at once when pods stall"
    if not facts.refused_triggers:
        return good(check, "CPU and memory take triggers", needed)
    found = "; ".join(f"{kind}.pressure: {why}" for kind, why in facts.refused_triggers.items())
    advice = "; ".join(dict.fromkeys(to_have_pressure(why, facts) for why in facts.refused_triggers.values()))
    return warned(check, found, needed, f"{advice}; without, a rise in CPU use is sampled at once all the same")


def _stall(facts: CgroupFacts) -> Finding:
    """Report PSI of cgroups. It is never a failure here: the policy's checks report it if a policy needs it."""
    found = f"none: {facts.no_stall}" if facts.no_stall else "PSI of groups is readable"
    return good("pressure.stall", found, "for cpuSuppressSignal pressure or both alone")


def to_have_pressure(why: str, facts: CgroupFacts) -> str:
    """Return the remedy for missing pressure of cgroups, by the reason."""
    if why == UNPRIVILEGED:
        return "grant CAP_SYS_RESOURCE"
    if why == NO_GROUPS:
        if facts.version == 1:
            return f"mount cgroup v2 at {facts.mount}/unified before pods are started, or boot with it alone"
        return "look again once there is a group of latency-sensitive pods"
    return "boot with psi=1, on a kernel with CONFIG_PSI (4.20 or newer)"
