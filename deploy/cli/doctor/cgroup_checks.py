"""Checks whether best-effort pods can be found and limited on this machine. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from slacktide.agents.node.ahead.pressure import NO_GROUPS, UNPRIVILEGED
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
    name = "v1, with v2 mounted beside it (hybrid)" if facts.hybrid else f"v{facts.version}"
    return good(check, f"{name}, at {facts.mount}", needed)


def _pods(facts: CgroupFacts) -> Finding:
    check, needed = "cgroup.pods", "the cgroup of all pods"
    if not facts.pods:
        return failed(check, "none", needed, facts.trouble)
    return good(check, f"{facts.pods}, driver {facts.driver}", needed)


def _best_effort(facts: CgroupFacts) -> Finding:
    check, needed = "cgroup.best-effort", "the cgroup of best-effort pods"
    if not facts.best_effort and facts.driver == "none":
        advice = "start its slice unit, and keep it running; until then nothing is limited"
        return warned(check, "does not exist now", needed, advice)
    if not facts.best_effort:
        advice = (
            "the kubelet creates it at its start (cgroupsPerQOS): check that it runs, and that --kubepods is its cgroup"
        )
        return failed(check, f"none below {facts.pods}", needed, advice)
    return good(check, facts.best_effort, needed)


def _idle_tier(facts: CgroupFacts) -> Iterator[Finding]:
    if not facts.idle_tier:
        return
    weight = KNOBS["cpu_shares"].files(facts.version)[0]
    advice = (
        "set cpuPolicy podIdle, which makes pods idle instead of their cgroup: otherwise a kubelet fails at "
        f"its next start, because Linux rejects its write of {weight} (EINVAL). If no agent runs, write 0 to "
        f"{facts.best_effort}/cpu.idle"
    )
    yield warned("cgroup.idle-tier", "cpu.idle is 1", "a best-effort cgroup that accepts the kubelet's weight", advice)


def _controller(controller: Controller, facts: CgroupFacts) -> Finding:
    check, state = f"controller.{controller.name}", facts.controllers[controller.name]
    wrong = failed if controller.required else warned
    if state == "usable":
        return good(check, state, controller.needed)
    if state == "absent":
        return wrong(check, state, controller.needed, _to_have(controller.name, facts))
    if not facts.best_effort:  # no cgroup to delegate it to, which is reported already
        return good(check, "there", controller.needed)
    found = "not delegated to the best-effort cgroup"
    return wrong(check, found, controller.needed, _to_hand_on(controller.name, facts))


def _to_have(name: str, facts: CgroupFacts) -> str:
    if facts.version == 1:
        return f"mkdir {facts.mount}/{name} && mount -t cgroup -o {name} {name} {facts.mount}/{name}"
    if name == "freezer":
        return "use kernel 5.2 or newer"
    return "use a kernel that includes it, without cgroup_disable= on its command line and without a v1 mount of it"


def _to_hand_on(name: str, facts: CgroupFacts) -> str:
    if facts.driver == "none" and facts.version == 1 and name in ("cpuset", "freezer"):
        return "on cgroup v1, systemd creates no cgroups in this hierarchy; use cgroup v2"
    if facts.driver == "none":
        return (
            "set CPUWeight=, MemoryAccounting=yes or AllowedCPUs= in the slice's unit, for cpu, memory and "
            "cpuset: systemd then delegates the controller"
        )
    if facts.version == 2:
        return (
            f"write +{name} to cgroup.subtree_control of each cgroup from {facts.mount} to {facts.pods} (the kubelet's)"
        )
    return f"the kubelet creates a cgroup in each hierarchy: check that {name} is mounted where the kubelet expects it"


def _knob(knob: Control, found: KnobFacts, facts: CgroupFacts) -> Finding:
    check, wrong = f"knob.{knob.name}", failed if knob.required else warned
    files = ", ".join(found.files)
    if found.state == "writable":
        return good(check, f"{files} writable", knob.needed)
    if not found.files:
        advice = f"cgroup v{facts.version} does not have it, so features that need it have no effect; use cgroup v2"
        return wrong(check, "none", knob.needed, advice)
    if found.state == "absent":
        controller = facts.controllers[knob.controller]
        advice = knob.absent if controller == "usable" else f"see controller.{knob.controller}"
        return wrong(check, f"no {files}", knob.needed, advice)
    advice = f"run as root; in a container, run privileged or mount {facts.mount} read-write"
    return wrong(check, f"{files} not writable: {found.trouble}", knob.needed, advice)


def _pressure(facts: CgroupFacts) -> Finding:
    check, needed = "pressure.groups", "samples taken immediately when pods stall"
    if not facts.refused_triggers:
        return good(check, "triggers can be set for CPU and memory", needed)
    found = "; ".join(f"{kind}.pressure: {why}" for kind, why in facts.refused_triggers.items())
    advice = "; ".join(dict.fromkeys(to_have_pressure(why, facts) for why in facts.refused_triggers.values()))
    return warned(check, found, needed, f"{advice}; until then, only a rise in CPU use triggers an immediate sample")


def _stall(facts: CgroupFacts) -> Finding:
    """Report PSI of cgroups. It is never a failure here: the policy's checks report it if a policy needs it."""
    found = f"none: {facts.no_stall}" if facts.no_stall else "PSI of cgroups is readable"
    return good("pressure.stall", found, "only for cpuSuppressSignal pressure or both")


def to_have_pressure(why: str, facts: CgroupFacts) -> str:
    """Return the remedy for missing pressure of cgroups, by the reason."""
    if why == UNPRIVILEGED:
        return "grant CAP_SYS_RESOURCE"
    if why == NO_GROUPS:
        if facts.version == 1:
            return f"mount cgroup v2 at {facts.mount}/unified before pods are started, or boot with cgroup v2 only"
        return "run doctor again when latency-sensitive pods are running"
    return "boot with psi=1, on a kernel with CONFIG_PSI (4.20 or newer)"
