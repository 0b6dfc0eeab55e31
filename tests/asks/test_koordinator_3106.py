"""Pressure stalls of CPU, memory and disks are in each sample of a node, read from the kernel's own files."""

from pathlib import Path

from slacktide.agents.node.cgroup import CgroupKernel
from slacktide.schemas.sample import Pressure

STALLS = {"cpu": (1.5, 0.0), "memory": (2.5, 0.25), "io": (30.0, 20.75)}
"""Percent of the last 10 s: some, full."""


def machine(folder: Path) -> CgroupKernel:
    """A node with cgroup v2, and such pressure."""
    groups, proc = folder / "cgroup", folder / "proc"
    (groups / "kubepods/besteffort").mkdir(parents=True)
    (groups / "cgroup.controllers").write_text("cpu memory\n")
    (proc / "pressure").mkdir(parents=True)
    for kind, (some, full) in STALLS.items():
        lines = [f"{name} avg10={pct:.2f} avg60=0 avg300=0 total=1" for name, pct in (("some", some), ("full", full))]
        (proc / "pressure" / kind).write_text("\n".join(lines) + "\n")
    return CgroupKernel(groups, proc, None, folder)


def test_a_sample_has_them_all(tmp_path: Path) -> None:
    assert machine(tmp_path).read(1).use.pressure == Pressure(
        cpu_some_pct=1.5, mem_some_pct=2.5, mem_full_pct=0.25, io_some_pct=30.0, io_full_pct=20.75
    )


def test_a_kernel_without_them_is_named(tmp_path: Path) -> None:
    kernel = machine(tmp_path)
    for kind in STALLS:
        (tmp_path / "proc/pressure" / kind).unlink()

    reading = kernel.read(1)
    assert reading.use.pressure == Pressure()
    missing = [one.what for one in reading.missing]
    assert all(any(what.endswith(f"pressure/{kind}") for what in missing) for kind in STALLS)
