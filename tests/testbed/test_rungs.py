"""What a rung lacks, and how one waits that is not there yet."""

import threading
from pathlib import Path

import pytest

from testbed.rungs import LADDER, await_built, lacks_api

(API,) = (rung for rung in LADDER if rung.marker == "cluster")


def test_programs_that_are_being_built_are_waited_for_and_lack_only_if_nothing_came_of_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    building = tmp_path / "building"
    building.touch()
    monkeypatch.setenv("SLACKTIDE_BUILDING", str(building))
    meanwhile = lacks_api.__wrapped__()
    threading.Timer(0.2, building.unlink).start()
    await_built(API)
    after = lacks_api.__wrapped__()

    assert meanwhile is None or "openssl" in meanwhile.what
    assert after is not None
    assert after.what.startswith("etcd, kube-apiserver, kubectl, ")
