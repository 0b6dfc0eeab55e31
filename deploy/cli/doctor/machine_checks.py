"""Checks whether this machine and this process meet an agent's requirements. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from slacktide.agents.node.spool import BYTES_MAX
from slacktide.deploy.cli.doctor.facts import MachineFacts
from slacktide.deploy.cli.doctor.finding import Finding, failed, good, warned

KERNEL_MIN = (5, 3)
"""Older kernels lack process handles (pidfd), which an agent needs to end evicted pods safely."""
THROTTLES_WELL = (4, 19)
OPEN_FILES_WANTED = 1_024
"""Four files of each of a kubelet's 110 pods are kept open, in half of the limit."""
OPEN_FILES_MIN = 128
SLOW_CLOCKS = frozenset({"acpi_pm", "hpet", "jiffies", "pit", "refined-jiffies"})
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """A right that root has and others may be given."""

    name: str
    bit: int
    needed: str
    now: bool
    """Whether something that acts today needs it."""
    writes: bool = False
    """Whether it is not needed where control files are writable all the same."""


CAPABILITIES = (
    Capability(name="CAP_DAC_OVERRIDE", bit=1, needed="to write control files of another user", now=True, writes=True),
    Capability(name="CAP_KILL", bit=5, needed="to end the processes of evicted pods", now=True),
    Capability(
        name="CAP_SYS_PTRACE", bit=19, needed="for a later version: core scheduling of other processes", now=False
    ),
    Capability(
        name="CAP_SYS_ADMIN", bit=21, needed="for a later version: resctrl (caches, memory bandwidth)", now=False
    ),
    Capability(name="CAP_SYS_RESOURCE", bit=24, needed="for PSI triggers", now=False),
)


def machine_findings(facts: MachineFacts, *, quota_writable: bool) -> Iterator[Finding]:
    """Report all findings of the machine except its cgroups.

    Args:
        facts: facts of the machine.
        quota_writable: whether this process could write the best-effort cgroup's CPU quota.
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
        elif one.now and not (one.writes and quota_writable):
            advice = f"run as root, or grant {one.name}; this is user {facts.user_id}"
            yield warned(check, "not held", one.needed, advice)
        else:
            found = "not held, but the CPU quota is writable without it" if one.writes else "not held"
            yield good(check, found, one.needed)


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
        advice = "give a folder that this user can write, with --state-folder"
        return failed(check, state.trouble, needed, advice)
    found = f"{state.path}, {state.free_bytes // _MIB:,} MiB free"
    if state.free_bytes < BYTES_MAX:
        return warned(
            check,
            found,
            needed,
            "free disk space; on a full disk, outcomes of suppression are merged while Kafka is unreachable",
        )
    return good(check, found, needed)
