"""Page cache that the kernel can drop at once does not count as memory in use, of no pod and no node."""

from pathlib import Path

import pytest

from testbed.plain_node import MIB, UID, Node

SECOND_NS = 1_000_000_000


@pytest.mark.parametrize("version", [1, 2])
def test_a_pod_of_100_mib_with_30_of_droppable_cache_uses_70(tmp_path: Path, version: int) -> None:
    reading = Node(tmp_path, version, "cgroupfs").kernel().read(SECOND_NS)
    used = {pod.uid: pod.mem_bytes for pod in reading.pod_use}

    assert used[UID] == 70 * MIB


def test_a_node_uses_what_it_could_not_give_to_others(tmp_path: Path) -> None:
    """MemTotal less MemAvailable: cache that can be dropped is available."""
    reading = Node(tmp_path, 2, "cgroupfs").kernel().read(SECOND_NS)

    assert reading.use.mem_bytes == 2048 * MIB
