"""Reports the machine's swap: where it has some, reclaimed memory of best-effort pods may go there."""

from collections.abc import Iterator
from pathlib import Path

from slacktide.agents.node.cgroup import parse
from slacktide.deploy.cli.doctor.finding import Finding, good

_TOTAL, _FREE = parse.field(b"SwapTotal:"), parse.field(b"SwapFree:")
_MIB = 1 << 20


def gather_swap(proc_mount: Path) -> tuple[int, int]:
    """Return total and used swap in bytes; 0: none, or unknown."""
    try:
        text = (proc_mount / "meminfo").read_bytes().replace(b" kB\n", b"\n")
        total = _TOTAL(text)
        return total * 1024, max(0, total - _FREE(text)) * 1024
    except (OSError, ValueError):
        return 0, 0


def swap_findings(total_bytes: int, used_bytes: int) -> Iterator[Finding]:
    """Report swap and its use, if there is any."""
    if total_bytes:
        found = f"{total_bytes // _MIB:,} MiB, {used_bytes // _MIB:,} MiB used"
        needed = "none; with memoryEarlyReclaimThresholdPercent, memory of best-effort pods may go there"
        yield good("memory.swap", found, needed)
