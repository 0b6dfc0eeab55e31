"""Checks whether a machine meets an agent's requirements. Pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from slacktide.agents.node.pressure import NO_GROUPS, UNPRIVILEGED
from slacktide.agents.node.spool import BYTES_MAX
from slacktide.deploy.cli.doctor.facts import CONTROLLERS, CgroupFacts, Controller, HostFacts, KnobFacts, MachineFacts
from slacktide.deploy.cli.doctor.finding import Finding, failed, good, warned
from slacktide.deploy.runtime.text import count
from slacktide.schemas.errors import ConfigError
from slacktide.schemas.knob_table import CONTROLS, KNOBS, Control

KERNEL_MIN = (5, 3)
"""Older kernels lack process handles (pidfd), which an agent needs to end evicted pods safely."""
THROTTLES_WELL = (4, 19)
OPEN_FILES_WANTED = 1_024
"""Four files of each of a kubelet's 110 pods are kept open, in half of the limit."""
OPEN_FILES_MIN = 128
SLOW_CLOCKS = frozenset({"acpi_pm", "hpet", "jiffies", "pit", "refined-jiffies"})
_MIB = 1024 * 1024
NAMED_MAX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """A right that root has and others may be given."""

    name: str
    bit: int
    needed: str
    optional: bool = False
    """Whether another check reports what is missing without it."""
    writes: bool = False
    """Whether it is not needed where control files are writable all the same."""


CAPABILITIES = (
    Capability(name="CAP_DAC_OVERRIDE", bit=1, needed="to write control files of another user", writes=True),
    Capability(name="CAP_KILL", bit=5, needed="to end the processes of evicted pods"),
    Capability(name="CAP_SYS_RESOURCE", bit=24, needed="for PSI triggers", optional=True),
)


def machine_findings(facts: MachineFacts, *, quota_writable: bool) -> Iterator[Finding]:
    """Report all findings of the machine except its cgroups.

    ``quota_writable``: this process could write the best-effort cgroup's CPU quota.
    """
    yield _kernel(facts)
    yield _clock_source(facts)
    yield _clock(facts)
    yield _pressure(facts)
    yield from _capabilities(facts, quota_writable=quota_writable)
    yield _open_files(facts)
    yield _state(facts)


def _kernel(facts: MachineFacts) -> Finding:
    check, needed = "machine.kernel", "{}.{} or newer".format(*KERNEL_MIN)
    version = re.match(r"(\d+)\.(\d+)", facts.kernel)
    if version is None:
        advice = "check that --proc-mount is the machine's /proc"
        return warned(check, f"{facts.kernel!r}, not a version" if facts.kernel else "unknown", needed, advice)
    if (int(version[1]), int(version[2])) < KERNEL_MIN:
        advice = "use a newer kernel: this one has no pidfd_open, so the agent cannot end evicted pods"
        if (int(version[1]), int(version[2])) < THROTTLES_WELL:
            advice += "; it also throttles cgroups that are below their quota, and has no PSI"
        return warned(check, facts.kernel, needed, advice)
    return good(check, facts.kernel, needed)


def _clock_source(facts: MachineFacts) -> Finding:
    check, needed = "clock.source", "a clock source that is fast to read"
    if not facts.clock_source:
        return warned(check, "unknown", needed, "mount /sys, so that doctor can check it")
    if facts.clock_source in SLOW_CLOCKS:
        advice = (
            "see available_clocksource in /sys/devices/system/clocksource/clocksource0; the kernel may have "
            "rejected tsc at boot"
        )
        return warned(check, facts.clock_source, needed, advice)
    return good(check, facts.clock_source, needed)


def _clock(facts: MachineFacts) -> Finding:
    check, needed = "clock.synchronised", "synchronised to within 5 s of other machines"
    if facts.clock_synchronised:
        return good(check, f"synchronised by {facts.clock_kept_by}", needed)
    if facts.clock_kept_by:
        return good(check, f"{facts.clock_kept_by} runs", needed)
    advice = (
        "run chronyd or systemd-timesyncd, unless the host synchronises the clock (check there with `timedatectl` "
        "or `chronyc tracking`)"
    )
    return warned(check, "unknown: chronyd, ntpd and timesyncd do not run here", needed, advice)


def _pressure(facts: MachineFacts) -> Finding:
    check, needed = "pressure.node", "CPU, memory and IO pressure in samples"
    trouble = {f"{kind}: {why}": kind for kind, why in facts.pressure.items() if why}
    if not trouble:
        return good(check, ", ".join(facts.pressure), needed)
    return warned(check, "; ".join(trouble), needed, "boot with psi=1, on a kernel with CONFIG_PSI (4.20 or newer)")


def _capabilities(facts: MachineFacts, *, quota_writable: bool) -> Iterator[Finding]:
    for one in CAPABILITIES:
        check = f"capability.{one.name}"
        if facts.capabilities is None:
            yield warned(check, "unknown", one.needed, "check that --proc-mount is the machine's /proc")
        elif facts.capabilities >> one.bit & 1:
            yield good(check, "held", one.needed)
        elif one.writes and quota_writable:
            yield good(check, "not needed: the CPU quota is writable", one.needed)
        elif not one.optional:
            advice = f"run as root, or grant {one.name}; this is user {facts.user_id}"
            yield warned(check, "not held", one.needed, advice)


def _open_files(facts: MachineFacts) -> Finding:
    check, needed = "process.open-files", f"{OPEN_FILES_WANTED:,}"
    found = f"{facts.open_files:,}" if facts.open_files >= 0 else "unlimited"
    advice = f"set ulimit -n {OPEN_FILES_WANTED}, or LimitNOFILE= in its systemd unit"
    if 0 <= facts.open_files < OPEN_FILES_MIN:
        return failed(check, found, needed, advice)
    if 0 <= facts.open_files < OPEN_FILES_WANTED:
        return warned(check, found, needed, f"{advice}; until then some files of pods are reopened for each sample")
    return good(check, found, needed)


def _state(facts: MachineFacts) -> Finding:
    state = facts.state
    check, needed = "state.folder", f"writable, {BYTES_MAX // _MIB} MiB free for the spool"
    if state.trouble:
        return failed(check, state.trouble, needed, "give a folder that this user can write, with --state-folder")
    found = f"{state.path}, {state.free_bytes // _MIB:,} MiB free"
    if state.free_bytes >= BYTES_MAX:
        return good(check, found, needed)
    advice = "free disk space; on a full disk, outcomes of suppression are merged while Kafka is unreachable"
    return warned(check, found, needed, advice)


def cgroup_findings(facts: CgroupFacts) -> Iterator[Finding]:
    """Check from the mount down to each knob. Checks below a missing part are skipped."""
    if not facts.version:
        yield failed("cgroup.version", f"none at {facts.mount}", "v1 or v2", facts.trouble)
        return
    name = "v1, with v2 mounted beside it (hybrid)" if facts.hybrid else f"v{facts.version}"
    yield good("cgroup.version", f"{name}, at {facts.mount}", "v1 or v2")
    if facts.driver != "none":
        check, needed = "cgroup.pods", "the cgroup of all pods"
        if facts.pods:
            yield good(check, f"{facts.pods}, driver {facts.driver}", needed)
        else:
            yield failed(check, "none", needed, facts.trouble)
    if facts.pods:
        yield _best_effort(facts)
    for controller in CONTROLLERS:
        yield _controller(controller, facts)
    for knob in CONTROLS:
        if knob.name in facts.knobs:
            yield _knob(knob, facts.knobs[knob.name], facts)
    if facts.best_effort:
        if facts.idle_tier:
            yield _idle_tier(facts)
        yield _group_pressure(facts)
        # Never a failure here: the policy's checks report it if a policy needs it.
        yield good("pressure.stall", _stall(facts), "only for cpuSuppressSignal pressure or both, and learnedCaps")


def _stall(facts: CgroupFacts) -> str:
    if not facts.no_stall:
        return "PSI of cgroups is readable"
    if not facts.no_run_delay:
        return f"run-queue delay of threads instead of PSI of cgroups: {facts.no_stall}"
    return f"none: {facts.no_stall}; {facts.no_run_delay}"


def writable(facts: CgroupFacts, knob: str) -> bool:
    """Return whether a knob could be used."""
    return knob in facts.knobs and facts.knobs[knob].state == "writable"


def _best_effort(facts: CgroupFacts) -> Finding:
    check, needed = "cgroup.best-effort", "the cgroup of best-effort pods"
    if facts.best_effort:
        return good(check, facts.best_effort, needed)
    if facts.driver == "none":
        advice = "start its slice unit, and keep it running; until then nothing is limited"
        return warned(check, "does not exist now", needed, advice)
    advice = (
        "the kubelet creates it at its start (cgroupsPerQOS): check that it runs, and that --kubepods is its cgroup"
    )
    return failed(check, f"none below {facts.pods}", needed, advice)


def _idle_tier(facts: CgroupFacts) -> Finding:
    weight = KNOBS["cpu_shares"].files(facts.version)[0]
    advice = (
        "set cpuPolicy podIdle, which makes pods idle instead of their cgroup: otherwise a kubelet fails at "
        f"its next start, because Linux rejects its write of {weight} (EINVAL). If no agent runs, write 0 to "
        f"{facts.best_effort}/cpu.idle"
    )
    return warned("cgroup.idle-tier", "cpu.idle is 1", "a best-effort cgroup that accepts the kubelet's weight", advice)


def _controller(controller: Controller, facts: CgroupFacts) -> Finding:
    check, state = f"controller.{controller.name}", facts.controllers[controller.name]
    wrong = failed if controller.required else warned
    if state == "usable":
        return good(check, state, controller.needed)
    if state == "absent":
        name, mount = controller.name, facts.mount
        advice = (
            "use a kernel that includes it, without cgroup_disable= on its command line and without a v1 mount of it"
        )
        if facts.version == 1:
            advice = f"mkdir {mount}/{name} && mount -t cgroup -o {name} {name} {mount}/{name}"
        elif name == "freezer":
            advice = "use kernel 5.2 or newer"
        return wrong(check, state, controller.needed, advice)
    if not facts.best_effort:  # no cgroup to delegate it to, which is reported already
        return good(check, "there", controller.needed)
    found = "not delegated to the best-effort cgroup"
    return wrong(check, found, controller.needed, _to_hand_on(controller.name, facts))


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


def _group_pressure(facts: CgroupFacts) -> Finding:
    check, needed = "pressure.groups", "samples taken immediately when pods stall"
    if not facts.refused_triggers:
        return good(check, "triggers can be set for CPU and memory", needed)
    found = "; ".join(f"{kind}.pressure: {why}" for kind, why in facts.refused_triggers.items())
    advice = "; ".join(dict.fromkeys(to_have_pressure(why, facts) for why in facts.refused_triggers.values()))
    return warned(check, found, needed, f"{advice}; until then, only a rise in CPU use triggers an immediate sample")


def to_have_pressure(why: str, facts: CgroupFacts) -> str:
    """Return the remedy for missing pressure of cgroups, by the reason."""
    if why == UNPRIVILEGED:
        return "grant CAP_SYS_RESOURCE"
    if why == NO_GROUPS:
        if facts.version == 1:
            return f"mount cgroup v2 at {facts.mount}/unified before pods are started, or boot with cgroup v2 only"
        return "run doctor again when latency-sensitive pods are running"
    return "boot with psi=1, on a kernel with CONFIG_PSI (4.20 or newer)"


def invalid(check: str, error: ConfigError) -> Iterator[Finding]:
    """Report each fault of a file."""
    for one in error.findings:
        yield failed(check, one.found, one.accepted or "a file that exists", f"correct it in {one.file}")


def host_findings(facts: HostFacts | ConfigError) -> Iterator[Finding]:
    """Report all findings of the workloads of a machine without Kubernetes."""
    if isinstance(facts, ConfigError):
        yield from invalid("host.valid", facts)
        return
    yield good("host.valid", facts.file, "workloads by QoS class")
    pods, more = count(len(facts.pods), "pod"), len(facts.pods) - NAMED_MAX
    names = ", ".join([*facts.pods[:NAMED_MAX], *([f"{more} more"] if more > 0 else [])])
    found = f"{pods}: {names}" if names else pods
    yield good("host.pods", found, f"the contents of {facts.best_effort}, and matching workloads")
    for remark in facts.remarks:
        yield warned("host.match", f"{remark.what}: {remark.why}", "cgroups as in the file", remark.advice)
