"""``slacktide doctor`` on the groups of a real kernel, v1 and v2: what it finds, and that it leaves all as it is."""

import json
from pathlib import Path

from click.testing import CliRunner

from kernel.groups import V1, V2, V2_WHOLE, Groups, on
from slacktide.deploy.cli.main import cli

KNOBS = {
    1: ("cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.shares"),
    2: ("cpu.max", "cpu.weight", "memory.max", "memory.high", "cgroup.freeze"),
}


@on(V1, V2, V2_WHOLE)
def test_real_groups_are_fit_and_stay_as_they_are(groups: Groups, tmp_path: Path) -> None:
    knobs = [groups.cpu / "besteffort" / name for name in KNOBS[groups.version]]
    before = [path.read_text() for path in knobs]
    given = ["doctor", "--kubepods", groups.kubepods, "--state-folder", str(tmp_path), "--output", "json"]
    result = CliRunner().invoke(cli, given)
    checks = {one["check"]: one for one in json.loads(result.stdout)["checks"]}

    assert result.exit_code == 0, [one for one in checks.values() if one["verdict"] == "failed"]
    assert checks["cgroup.version"]["found"].startswith(f"v{groups.version}, ")
    assert checks["cgroup.pods"]["found"] == f"{groups.kubepods}, driver cgroupfs"
    assert checks["cgroup.best-effort"]["found"] == str(groups.cpu / "besteffort")
    assert checks["controller.memory"]["found"] == "usable"
    quota = ", ".join(name for name in KNOBS[groups.version] if name.startswith(("cpu.cfs", "cpu.max")))
    assert checks["knob.cpu-quota"]["found"] == f"{quota} writable"
    assert checks["knob.memory-limit"]["verdict"] == "ok"
    assert checks["knob.memory-high"]["verdict"] == ("warning" if groups.version == 1 else "ok")
    assert [path.read_text() for path in knobs] == before
    if groups.version == 2 and "cpuset" in (groups.cpu.parent / "cgroup.controllers").read_text():
        there = [
            one for name, one in checks.items() if name.startswith(("cgroup.", "controller.", "knob.", "pressure."))
        ]
        assert [one for one in there if one["verdict"] != "ok"] == []
