"""A node's files of its NUMA zones: fake trees of /sys and of the kubelet's directory."""

import json
from collections.abc import Sequence
from pathlib import Path

from slacktide.agents.node.zones.reading import ZonesReader
from slacktide.agents.node.zones.record import node_zones
from slacktide.schemas.inventory import Pod
from slacktide.schemas.zones import NodeZones

GIB = 2**30
STATIC = """
topologyManagerPolicy: restricted
topologyManagerScope: pod
topologyManagerPolicyOptions: {prefer-closest-numa-nodes: "true", max-allowable-numa-nodes: "16"}
cpuManagerPolicy: static
memoryManagerPolicy: Static
reservedSystemCPUs: "0"
reservedMemory: [{numaNode: 0, limits: {memory: 1Gi, hugepages-2Mi: 4Mi}}]
"""


class Tree:
    """The files of a node."""

    def __init__(self, folder: Path) -> None:
        self.sys = folder / "node"
        self.kubelet = folder / "kubelet"
        self.kubelet.mkdir()

    def write(self, name: str, text: str) -> None:
        file = self.sys / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def zone(self, number: int, cpus: str, gib: int, distances: str, **pages: int) -> None:
        """Pages of a size by name: ``pages_2048`` for 2 MiB."""
        place = f"node{number}"
        self.write(f"{place}/cpulist", f"{cpus}\n")
        self.write(f"{place}/distance", f"{distances}\n")
        total = f"Node {number} MemTotal:       {gib * 2**20} kB\n"
        self.write(
            f"{place}/meminfo", f"{total}Node {number} MemFree:        1234 kB\nNode {number} HugePages_Total:     0\n"
        )
        for size, count in pages.items():
            self.write(f"{place}/hugepages/hugepages-{size.removeprefix('pages_')}kB/nr_hugepages", f"{count}\n")

    def cores(self, *cores: str, socket: int = 0) -> None:
        """What the kernel says of the CPUs of these cores, each such as ``0,2``."""
        files = {}
        for core in cores:
            for cpu in core.split(","):
                files[f"cpu{cpu}/topology/thread_siblings_list"] = core
                files[f"cpu{cpu}/topology/physical_package_id"] = str(socket)
        files["online"] = ",".join(cores)
        for name, text in files.items():
            self.write(f"../cpu/{name}", f"{text}\n")

    def cpu_state(self, **entries: dict[str, str]) -> None:
        state = {"policyName": "static", "defaultCpuSet": "0-1", "entries": entries, "checksum": 1}
        (self.kubelet / "cpu_manager_state").write_text(json.dumps(state))

    def memory_state(self, allocatable: int, free: int, **pods: list[int]) -> None:
        """Of zone 0; each pod holds as much as another, and all of them what is not free."""
        held = allocatable - free
        table = {"total": 9 * GIB, "systemReserved": 0, "allocatable": allocatable, "reserved": held, "free": free}
        zone = {"numberOfAssignments": 1, "memoryMap": {"memory": table}, "cells": [0]}
        size = held // max(1, len(pods))
        entries = {
            uid: {"app": [{"numaAffinity": zones, "type": "memory", "size": size}]} for uid, zones in pods.items()
        }
        state = {"policyName": "Static", "machineState": {"0": zone}, "entries": entries, "checksum": 1}
        (self.kubelet / "memory_manager_state").write_text(json.dumps(state))

    def config(self, text: str) -> None:
        (self.kubelet / "config.yaml").write_text(text)

    def record(self, *uids: str, pods: Sequence[Pod] = ()) -> NodeZones:
        read = ZonesReader(self.sys, self.kubelet).read().with_pods(pods)
        return node_zones(read, uids, node="n1", boot_id="b", seq=1, observed_ms=5)


def two_zones(folder: Path) -> Tree:
    """Two zones of 2 CPUs and 4 GiB, with a page of 1 GiB and 8 of 2 MiB in the first."""
    tree = Tree(folder)
    tree.write("online", "0-1\n")
    tree.zone(0, "0-1", 4, "10 21", pages_2048=8, pages_1048576=1)
    tree.zone(1, "2-3", 4, "21 10", pages_2048=0)
    tree.config("kind: KubeletConfiguration\n")
    return tree
