"""Holding a limit: what is written, what is never written, and what is said when it fails."""

import os
from pathlib import Path, PurePosixPath

import pytest

from slacktide.agents.node.cgroup import CgroupKernel
from slacktide.agents.node.cgroup.originals import FILE, Originals
from slacktide.agents.node.cgroup.plan import Bandwidth, Clipped, Write
from slacktide.schemas.errors import CgroupError
from slacktide.schemas.sample import Limits

UNLIMITED = Limits(be_cfs_quota_us=None)
CLIPPED = {PurePosixPath("pod1/c1"): Clipped(Bandwidth(50_000, 100_000), (Bandwidth(20_000, 100_000),))}


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def version(request):
    return request.param


@pytest.fixture
def root(tmp_path, version):
    """The hierarchy with cpu, with limits in every group and one pod in each tier."""
    mount = tmp_path / "cgroup"
    root = mount / "cpu" if version == 1 else mount
    for group in ("", "burstable", "burstable/pod1", "besteffort", "besteffort/pod2", "besteffort/pod2/c1", "pod3"):
        folder = root / "kubepods" / group
        folder.mkdir(parents=True)
        if version == 1:
            (folder / "cpu.cfs_quota_us").write_text("-1\n")
            (folder / "cpu.cfs_period_us").write_text("100000\n")
        else:
            (folder / "cpu.max").write_text("max 100000\n")
    if version == 2:
        (mount / "cgroup.controllers").write_text("cpu memory\n")
        (mount / "cgroup.subtree_control").write_text("cpu\n")
        (mount / "kubepods/cgroup.subtree_control").write_text("memory\n")
    return root


@pytest.fixture
def kernel(root, tmp_path):
    return CgroupKernel(tmp_path / "cgroup", tmp_path, None, tmp_path)


@pytest.fixture
def limit_file(root, version):
    return root / "kubepods/besteffort" / ("cpu.cfs_quota_us" if version == 1 else "cpu.max")


def texts(folder: Path) -> dict[str, str]:
    return {str(path): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_a_limit_is_written_into_one_file_and_read_back(kernel, root, version, limit_file) -> None:
    before = texts(root)
    kernel.hold(Limits(be_cfs_quota_us=20_000))

    text = "20000\n" if version == 1 else "20000 100000\n"
    assert texts(root) == before | {str(limit_file): text}
    assert kernel.limits() == Limits(be_cfs_quota_us=20_000)


def test_a_lifted_limit_is_none(kernel, version, limit_file) -> None:
    kernel.hold(Limits(be_cfs_quota_us=1_000_000))
    kernel.hold(UNLIMITED)

    assert limit_file.read_text() == ("-1\n" if version == 1 else "max 100000\n")
    assert kernel.limits() == UNLIMITED


def test_another_period_than_the_standard_one_is_put_right(kernel, root, version) -> None:
    if version == 1:
        (root / "kubepods/besteffort/cpu.cfs_period_us").write_text("50000\n")
    else:
        (root / "kubepods/besteffort/cpu.max").write_text("30000 50000\n")
    kernel.hold(Limits(be_cfs_quota_us=20_000))

    assert kernel.limits() == Limits(be_cfs_quota_us=20_000, be_cfs_period_us=100_000)


def test_what_holds_already_is_not_written(kernel, limit_file) -> None:
    kernel.hold(Limits(be_cfs_quota_us=20_000))
    os.utime(limit_file, ns=(0, 0))
    kernel.hold(Limits(be_cfs_quota_us=20_000))

    assert limit_file.stat().st_mtime_ns == 0


@pytest.mark.parametrize(
    ("group", "file"),
    [
        pytest.param("../burstable", None, id="another tier"),
        pytest.param("..", None, id="all pods"),
        pytest.param("link", None, id="a link that leads out"),
        pytest.param("/etc", None, id="anywhere"),
        pytest.param("pod2", "cgroup.procs", id="no limit"),
    ],
)
def test_nothing_outside_the_best_effort_group_is_ever_opened_for_writing(
    kernel, root, group, file, limit_file
) -> None:
    (root / "kubepods/besteffort/link").symlink_to(root / "kubepods/burstable")
    before = texts(root)

    with pytest.raises(CgroupError, match="never written"):
        kernel._holder._knobs.write(Write(PurePosixPath(group), file or limit_file.name, "1000"))
    assert texts(root) == before


def test_a_refused_write_names_path_text_and_error(kernel, limit_file) -> None:
    """A link instead of the file: it is read, but never written through."""
    limit_file.rename(limit_file.with_name("elsewhere"))
    limit_file.symlink_to("elsewhere")

    with pytest.raises(CgroupError, match=r"besteffort/cpu\.[a-z_]+: writing '20000.*': ELOOP \(") as refused:
        kernel.hold(Limits(be_cfs_quota_us=20_000))
    assert refused.value.path == str(limit_file)


def test_without_the_limits_file_the_error_says_what_to_do(kernel, root, version, limit_file) -> None:
    limit_file.unlink()

    what = "has no CPU limits" if version == 1 else rf"write \+cpu to {root}/kubepods/cgroup.subtree_control$"
    with pytest.raises(CgroupError, match=what):
        kernel.hold(Limits(be_cfs_quota_us=20_000))
    reading = kernel.read(1)
    assert reading.limits is None
    assert any(
        missing.what == os.path.relpath(limit_file, root.parent if version == 1 else root)
        for missing in reading.missing
    )


def test_without_a_best_effort_group_the_error_says_so(kernel, root) -> None:
    (root / "kubepods/besteffort").rename(root / "kubepods/gone")

    with pytest.raises(CgroupError, match="no best-effort cgroup now; a kubelet creates it"):
        kernel.hold(UNLIMITED)
    with pytest.raises(CgroupError, match="no best-effort cgroup now"):
        kernel.limits()


def test_a_malformed_limit_is_an_error_with_its_path(kernel, limit_file) -> None:
    limit_file.write_text("0\n")

    with pytest.raises(CgroupError, match=f"{limit_file}: malformed: "):
        kernel.limits()


def test_what_groups_held_is_remembered_over_a_restart(tmp_path) -> None:
    Originals(tmp_path).keep(CLIPPED)

    assert Originals(tmp_path).clipped == CLIPPED


def test_a_damaged_memory_is_set_aside_and_said_once(kernel, tmp_path) -> None:
    (tmp_path / FILE).write_text('{"pod1": {"own": 7')
    kernel = CgroupKernel(tmp_path / "cgroup", tmp_path, None, tmp_path)
    first, second = kernel.read(1), kernel.read(2)

    said = [missing.why for missing in first.missing if missing.what == str(tmp_path / FILE)]
    assert len(said) == 1
    assert said[0].startswith(f"malformed, renamed to {FILE}.bad")
    assert not any(missing.what == str(tmp_path / FILE) for missing in second.missing)
    assert (tmp_path / f"{FILE}.bad").exists()


def test_what_cannot_be_remembered_is_an_error(tmp_path) -> None:
    originals = Originals(tmp_path / "not there")

    with pytest.raises(CgroupError, match="cannot store the limits to restore: No such file"):
        originals.keep(CLIPPED)
    assert originals.clipped == {}
