"""A node as files in a folder: what kernels of both versions write, for tests that change a figure by hand."""

import shutil
from pathlib import Path

from slacktide.agents.node.cgroup import CgroupKernel

MIB = 1 << 20
UID, LS_UID = "6a0e-11aa", "77ff-22bb"
V1_POD = {
    "cpuacct/{pod}/cpuacct.usage": "5000000000\n",
    "cpu/{pod}/cpu.stat": "nr_periods 10\nnr_throttled 2\nthrottled_time 123\nnr_bursts 0\nburst_time 0\n",
    "memory/{pod}/memory.usage_in_bytes": f"{100 * MIB}\n",
    "memory/{pod}/memory.stat": f"cache 1\ninactive_file 7\ntotal_inactive_file {30 * MIB}\ntotal_rss 3\n",
}
V2_POD = {
    "{pod}/cpu.stat": "usage_usec 5000000\nuser_usec 1\nsystem_usec 1\nnr_periods 10\nnr_throttled 2\n",
    "{pod}/memory.current": f"{100 * MIB}\n",
    "{pod}/memory.stat": f"anon 3\ninactive_anon 1\ninactive_file {30 * MIB}\nactive_file 4\n",
}
V1_GROUP = {"cpu/{group}/cpu.cfs_quota_us": "-1\n", "cpu/{group}/cpu.cfs_period_us": "100000\n"}
V2_GROUP = {"{group}/cpu.max": "max 100000\n"}
PROC = {
    "stat": "cpu  1000 20 300 90000 5000 6 7 800 50 0\ncpu0 1000 20 300 90000 5000 6 7 800 50 0\nintr 5 0 0\n",
    "meminfo": "MemTotal:        8388608 kB\nMemFree:          123456 kB\nMemAvailable:    6291456 kB\nBuffers: 1 kB\n",
    "pressure/cpu": "some avg10=1.50 avg60=0.00 avg300=0.00 total=1\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
    "pressure/memory": "some avg10=2.50 avg60=0.00 avg300=0.00 total=1\nfull avg10=0.25 avg60=0.00 total=0\n",
    "pressure/io": "some avg10=30.00 avg60=0.00 avg300=0.00 total=1\nfull avg10=20.75 avg60=0.00 avg300=0.00 total=0\n",
}


class Node:
    """A node as a folder, by one version of cgroups and one way of naming groups."""

    def __init__(self, folder: Path, version: int, naming: str) -> None:
        self.folder, self.version, self.naming = folder, version, naming
        self.mount, self.proc = folder / "cgroup", folder / "proc"
        self.pods = "kubepods.slice" if naming == "systemd" else "kubepods"
        for name, text in PROC.items():
            self.write(self.proc / name, text)
        if version == 2:
            self.write(self.mount / "cgroup.controllers", "cpu memory\n")
        for tier in ("besteffort", "burstable"):
            for name, text in (V1_GROUP if version == 1 else V2_GROUP).items():
                self.write(self.mount / name.format(group=self.tier(tier)), text)
        self.add_pod("besteffort", UID)
        self.add_pod("", LS_UID)

    def tier(self, name: str) -> str:
        if not name:
            return self.pods
        return f"{self.pods}/kubepods-{name}.slice" if self.naming == "systemd" else f"{self.pods}/{name}"

    def pod(self, tier: str, uid: str) -> str:
        if self.naming == "systemd":
            middle = f"-{tier}" if tier else ""
            return f"{self.tier(tier)}/kubepods{middle}-pod{uid.replace('-', '_')}.slice"
        return f"{self.tier(tier)}/pod{uid}"

    def pod_files(self, tier: str, uid: str) -> dict[str, str]:
        files = V1_POD if self.version == 1 else V2_POD
        return {name.format(pod=self.pod(tier, uid)): text for name, text in files.items()}

    def add_pod(self, tier: str, uid: str) -> None:
        for name, text in self.pod_files(tier, uid).items():
            self.write(self.mount / name, text)

    def remove_pod(self, tier: str, uid: str) -> None:
        for name in self.pod_files(tier, uid):
            shutil.rmtree((self.mount / name).parent, ignore_errors=True)

    @staticmethod
    def write(path: Path, text: str | bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())

    def kernel(self, kubepods: str | None = None) -> CgroupKernel:
        return CgroupKernel(self.mount, self.proc, kubepods, self.folder)
