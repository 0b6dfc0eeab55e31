"""Writes knobs of a virtual machine's cgroups. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from slacktide.agents.node.cgroup.knob_files import FILES, KnobFile, as_reads_back, weight_of
from slacktide.deploy.virtual.machine import Machine
from slacktide.schemas.knob_table import Knob


def plain(version: int) -> Mapping[Knob, KnobFile]:
    """Return the knobs that the model only stores, with their files, by cgroup version."""
    return {knob: file for knob, file in FILES[version].items() if knob != "cpu_shares"}


def write(machine: Machine, path: str, knob: Knob, value: int | None) -> None:
    """Set a cgroup's knob, except for its quota.

    Raises:
        CgroupError: the kernel would reject it.
    """
    if knob == "cpu_shares":
        machine.set_weight(path, (value or 0) if machine.version == 1 else weight_of(value or 0))
    elif knob == "cfs_burst_us":
        machine.set_burst(path, value or 0)
    else:
        machine.groups[path].knobs[knob] = as_reads_back(knob, value, machine.version)
