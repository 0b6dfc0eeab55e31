"""cgroup v1 and v2: where the groups are, how they are read, and the plan of writes."""

from slacktide.agents.node.cgroup.kernel import CgroupKernel

__all__ = ["CgroupKernel"]
