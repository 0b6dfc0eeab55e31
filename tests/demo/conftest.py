"""What the demo's tests share."""

import fcntl
import os
import time
from pathlib import Path

import pytest

MOUNT = Path("/sys/fs/cgroup")
WAIT_S = 80.0


@pytest.fixture(autouse=True)
def _machine_for_itself(request):
    """Real groups belong to one demo at a time: one that a person runs here is waited for."""
    if request.node.get_closest_marker("kernel") is None:
        return
    hierarchy = os.open(MOUNT / "cpu" if (MOUNT / "cpu").exists() else MOUNT, os.O_RDONLY)
    try:
        until_s = time.monotonic() + WAIT_S
        while time.monotonic() < until_s:
            try:
                fcntl.flock(hierarchy, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(0.5)
            else:
                return
    finally:
        os.close(hierarchy)  # which unlocks it
