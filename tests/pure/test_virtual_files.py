"""The files of a virtual machine: what they say, who may write them, and that readers are never in the way."""

from __future__ import annotations

import pytest

from slacktide.deploy.virtual.files import Projection
from slacktide.deploy.virtual.machine import BEST_EFFORT, Machine

GIB = 1 << 30


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def version(request):
    return request.param


@pytest.fixture
def shown(tmp_path, version):
    """Two best-effort pods that would use everything, shown as files."""
    machine = Machine(cpus=4, mem_bytes=8 * GIB, version=version)
    for uid in ("one", "two"):
        machine.add_pod(uid, "BestEffort").demand_milli = 4000
    return Projection(machine, tmp_path / "node")


def cpu_file(shown, group, name):
    return shown.cgroup_mount / ("cpu" if shown.machine.version == 1 else "") / group / name


def quota_file(shown, group=BEST_EFFORT):
    return cpu_file(shown, group, "cpu.cfs_quota_us" if shown.machine.version == 1 else "cpu.max")


def write_quota(shown, quota_us, group=BEST_EFFORT):
    """As an agent does: the file is emptied and filled."""
    quota_file(shown, group).write_text(f"{quota_us}" if shown.machine.version == 1 else f"{quota_us} 100000")


def test_usage_is_told_in_the_hierarchys_own_unit(shown):
    shown.machine.step(1000)
    shown.write_files()

    if shown.machine.version == 1:
        text = (shown.cgroup_mount / "cpuacct" / BEST_EFFORT / "cpuacct.usage").read_text()
        assert int(text) == 4_000_000_000
    else:
        text = (shown.cgroup_mount / BEST_EFFORT / "cpu.stat").read_text()
        assert dict(line.split() for line in text.splitlines())["usage_usec"] == "4000000"


def test_a_new_group_has_no_quota(shown):
    assert quota_file(shown).read_text().split() == (["-1"] if shown.machine.version == 1 else ["max", "100000"])


def test_what_an_agent_writes_holds_from_the_next_step_on(shown):
    write_quota(shown, 50_000)
    refused = shown.read_back()
    shown.machine.step(1000)

    assert refused == []
    assert shown.machine.best_effort.usage_ns == 500_000_000


def test_lifting_a_quota_is_understood_in_every_spelling(shown):
    for text in {1: ["-1", "-1\n"], 2: ["max", "max 100000", "max 100000\n"]}[shown.machine.version]:
        write_quota(shown, 50_000)
        shown.read_back()
        quota_file(shown).write_text(text)
        shown.read_back()

        assert shown.machine.best_effort.quota_us is None


def test_a_file_just_emptied_changes_nothing(shown):
    """Between an agent's emptying and its filling of a file the old limit holds."""
    write_quota(shown, 50_000)
    shown.read_back()
    quota_file(shown).write_text("")

    assert shown.read_back() == []
    assert shown.machine.best_effort.quota_us == 50_000


def test_what_was_written_is_not_written_over(shown):
    """Figures are refreshed; control files belong to the agent, also what it wrote since the last look."""
    write_quota(shown, 50_000)
    shown.machine.step(1000)
    shown.write_files()

    assert quota_file(shown).read_text().split()[0] == "50000"


@pytest.mark.parametrize("text", ["soon", "500", "1 2 3"])
def test_a_write_the_kernel_would_refuse_is_undone(shown, text):
    write_quota(shown, 50_000)
    shown.read_back()
    quota_file(shown).write_text(text)
    refused = shown.read_back()

    assert len(refused) == 1
    assert shown.machine.best_effort.quota_us == 50_000
    assert quota_file(shown).read_text().split()[0] == "50000"
    assert shown.read_back() == []


def test_parent_and_child_may_change_in_either_order(shown):
    """Files keep no order of writes: what is valid when all are written is taken."""
    pod = shown.machine.pods["one"].path
    for pod_us, group_us in ((60_000, 80_000), (20_000, 30_000), (90_000, 90_000)):
        write_quota(shown, group_us)
        write_quota(shown, pod_us, pod)

        assert shown.read_back() == []
        assert (shown.machine.best_effort.quota_us, shown.machine.pods["one"].quota_us) == (group_us, pod_us)


def test_who_opened_the_old_text_reads_the_old_text(shown):
    """Texts are replaced, never changed: nobody reads the head of one and the tail of another."""
    path = shown.proc_mount / "stat"
    before = path.read_text()
    with path.open() as file:
        shown.machine.step(1000)
        shown.write_files()

        assert file.read() == before
    assert path.read_text() != before


def test_a_shortened_text_whose_old_tail_is_still_there_is_understood(shown):
    """As an agent's write looks between its writing and its cutting off."""
    write_quota(shown, 100_000)
    shown.read_back()
    with quota_file(shown).open("r+") as file:
        file.write("5000\n" if shown.machine.version == 1 else "5000 100000\n")
    shown.read_back()

    assert shown.machine.best_effort.quota_us == 5_000


def test_pods_come_and_go_whole(shown):
    machine = shown.machine
    new = machine.add_pod("three", "Burstable", request_milli=500)
    gone = machine.pods["one"].path
    machine.remove_pod("one")
    shown.write_files()

    assert quota_file(shown, new.path).exists()
    assert not quota_file(shown, gone).parent.exists()
    assert shown.read_back() == []


def test_a_pod_started_anew_under_its_uid_begins_at_zero(shown):
    machine = shown.machine
    machine.step(1000)
    machine.remove_pod("one")
    machine.add_pod("one", "BestEffort")
    shown.write_files()

    name = "cpuacct/{}/cpuacct.usage" if machine.version == 1 else "{}/cpu.stat"
    text = (shown.cgroup_mount / name.format(machine.pods["one"].path)).read_text()
    assert text.split()[0 if machine.version == 1 else 1] == "0"


def test_jiffies_of_use_and_idleness_add_up_to_the_time_of_all_cpus(shown):
    shown.machine.step(10_000)
    shown.machine.pods["one"].demand_milli = shown.machine.pods["two"].demand_milli = 0
    shown.machine.step(5_000)
    shown.write_files()
    total, *cpus = [line.split() for line in (shown.proc_mount / "stat").read_text().splitlines() if "cpu" in line]

    assert [int(figure) for figure in total[1:5]] == [4000, 0, 0, 2000]
    assert [sum(int(cpu[place]) for cpu in cpus) for place in (1, 4)] == [4000, 2000]


def test_available_memory_counts_what_can_be_dropped(shown):
    pod = shown.machine.pods["one"]
    pod.mem_bytes, pod.cache_bytes = 2 * GIB, 3 * GIB
    shown.write_files()
    lines = (shown.proc_mount / "meminfo").read_text().splitlines()
    gib = {line.split()[0]: int(line.split()[1]) / (1 << 20) for line in lines}

    assert (gib["MemTotal:"], gib["MemFree:"], gib["MemAvailable:"]) == (8, 3, 6)


def test_an_occupied_folder_is_refused(shown):
    with pytest.raises(FileExistsError):
        Projection(Machine(cpus=1, mem_bytes=GIB), shown.proc_mount.parent)
