"""A plain host's pods: groups in fake trees of cgroup v1 and v2, and containers from a server that speaks as Docker."""

from pathlib import Path, PurePosixPath

import pytest

from slacktide.agents.node.cgroup import CgroupKernel
from slacktide.agents.node.cgroup.hierarchy import PlainHost
from slacktide.agents.node.host_pods import Docker, DockerError, HostPods, watch
from slacktide.schemas.errors import CgroupError
from slacktide.schemas.inventory import Pod
from slacktide.schemas.knob import KnobKey, pod_group
from slacktide.schemas.qos import is_best_effort
from testbed.docker import DockerServer, Running

WEB, DB, JOB = "a1" * 32, "b2" * 32, "c3" * 32
FILES = {
    1: ("cpu/{}/cpu.cfs_quota_us", "cpu/{}/cpu.cfs_period_us", "cpuacct/{}/cpuacct.usage", "memory/{}/tasks"),
    2: ("{}/cpu.max", "{}/memory.current"),
}


class Host:
    """A machine with systemd and Docker: groups, /proc, a socket, and the operator's file."""

    def __init__(self, folder: Path, version: int, docker: DockerServer) -> None:
        self.mount, self.proc, self.version, self.docker = folder / "cgroup", folder / "proc", version, docker
        self.file, self.state = folder / "host.yaml", folder
        self.mount.mkdir()
        if version == 2:
            (self.mount / "cgroup.controllers").write_text("cpu memory\n")
        self.make("batch.slice")
        self.make("web.slice")

    def make(self, group: str) -> None:
        for name in FILES[self.version]:
            file = self.mount / name.format(group)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("100000\n" if self.version == 1 else "max 100000\n")

    def run(self, name: str, group: str, container_id: str, **labels: str) -> None:
        """A container, in a group of Docker's making."""
        self.make(group)
        pid = 100 + len(self.docker.containers)
        self.docker.containers.append(Running(id=container_id, name=name, labels=labels, pid=pid))
        cgroup_file = self.proc / str(pid) / "cgroup"
        cgroup_file.parent.mkdir(parents=True)
        v1 = f"9:memory:/{group}\n4:cpu,cpuacct:/{group}\n1:name=systemd:/elsewhere\n"
        cgroup_file.write_text(v1 if self.version == 1 else f"0::/{group}\n")

    def write(self, *workloads: str) -> None:
        lines = [f"- {{{one}}}" for one in workloads]
        self.file.write_text(
            "\n".join([f"dockerSocket: {self.docker.path}", "bestEffort: batch.slice", "workloads:", *lines])
        )

    def open(self) -> HostPods:
        file = watch(self.file)
        self.layout = PlainHost(file.value.best_effort)
        self.kernel = CgroupKernel(self.mount, self.proc, None, self.state, self.layout)
        return HostPods(file, self.layout, self.kernel.hierarchy, self.proc)

    def seen(self) -> dict[str, bool]:
        """What the kernel's reading has, by uid: whether it is in the best-effort group."""
        return {use.uid: use.best_effort_group for use in self.kernel.read(0).pod_use}


@pytest.fixture
def docker(tmp_path):
    server = DockerServer(tmp_path / "docker.sock")
    yield server
    server.close()


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def host(tmp_path, request, docker) -> Host:
    return Host(tmp_path, request.param, docker)


def classes_of(pods: list[Pod]) -> list[tuple[str, str, str | None]]:
    return sorted((pod.namespace, pod.name, pod.qos_label) for pod in pods)


def test_slices_and_whatever_lies_in_the_best_effort_group_are_pods(host) -> None:
    host.make("batch.slice/etl.service")
    host.make("batch.slice/other.service/below")
    host.write(
        "slice: web.slice, qosClass: LSR, priority: 9500",
        "slice: batch.slice/etl.service, qosClass: BE, priority: 5500",
    )
    listed = host.open().look()

    assert classes_of(listed.pods) == [
        ("host", "etl.service", "BE"),
        ("host", "other.service", "BE"),
        ("host", "web.slice", "LSR"),
    ]
    assert {pod.uid: pod.priority for pod in listed.pods} == {
        "batch.slice:etl.service": 5500,
        "batch.slice:other.service": None,
        "web.slice": 9500,
    }
    assert listed.notes == ()
    assert host.seen() == {"batch.slice:etl.service": True, "batch.slice:other.service": True, "web.slice": False}
    assert host.kernel.pod_group("web.slice") == PurePosixPath("web.slice")


def test_nothing_is_ever_written_outside_the_best_effort_group(host) -> None:
    """Of what systemd and Docker made elsewhere not even knobs that isolate are set."""
    host.make("batch.slice/etl.service")
    host.make("system.slice/db.service")
    for controller in ("memory", "."):
        for group in ("batch.slice/etl.service", "system.slice/db.service"):
            folder = host.mount / controller / group
            if folder.is_dir():
                (folder / "memory.low").write_text("0\n")
    host.write("slice: system.slice/db.service, qosClass: LS, requests: {memory: 1Gi}")
    listed = host.open().look()
    host.seen()
    host.kernel.know(listed.pods)
    keys = [KnobKey(pod_group(pod.uid), "mem_low_bytes") for pod in listed.pods]

    assert [key.group for key in keys] == ["pod/batch.slice:etl.service", "pod/system.slice:db.service"]
    with pytest.raises(CgroupError, match="no such cgroup"):
        host.kernel.put(keys[1], 4096)
    if host.version == 2:
        assert list(host.kernel.held(keys).values) == keys[:1]
        host.kernel.put(keys[0], 4096)
        assert host.kernel.held(keys).values == {keys[0]: 4096}


def test_a_pod_in_the_best_effort_group_is_seen_by_the_kernel_before_it_is_listed(host) -> None:
    host.write()
    pods = host.open()
    pods.look()
    host.make("batch.slice/new.service")

    assert host.seen() == {"batch.slice:new.service": True}
    assert [pod.uid for pod in pods.look().pods] == ["batch.slice:new.service"]


@pytest.mark.parametrize(
    ("web", "job"),
    [
        (f"docker/{WEB}", f"batch.slice/{JOB}"),
        (f"system.slice/docker-{WEB}.scope", f"batch.slice/docker-{JOB}.scope"),
    ],
    ids=["cgroupfs", "systemd"],
)
def test_containers_are_found_by_label_wherever_their_group_is(host, web, job) -> None:
    host.run("shop-web-1", web, WEB, **{"tier": "web", "com.docker.compose.project": "shop"})
    host.run("shop-db-1", web.replace(WEB, DB), DB, **{"com.docker.compose.project": "shop"})
    host.run("nightly", job, JOB, tier="batch")
    host.write("containerLabel: tier=web, qosClass: LS", "containerLabel: tier=batch, qosClass: BE, priority: 5100")
    listed = host.open().look()

    assert classes_of(listed.pods) == [("host", "nightly", "BE"), ("shop", "shop-web-1", "LS")]
    assert {pod.uid: pod.priority for pod in listed.pods} == {WEB: None, JOB: 5100}
    assert listed.notes == ()
    assert host.seen() == {WEB: False, JOB: True}
    assert host.kernel.pod_group(WEB) == PurePosixPath(web)


def test_a_container_with_groups_of_its_own_is_found_above_them(host) -> None:
    host.run("systemd-in-docker", f"docker/{WEB}/init.scope", WEB, tier="web")
    host.write("containerLabel: tier, qosClass: LS")
    host.open().look()

    assert host.layout.others == {WEB: PurePosixPath(f"docker/{WEB}")}


def test_what_is_best_effort_but_not_in_the_group_is_told_and_not_held(host) -> None:
    """It counts as what it is: somebody whom nobody holds back."""
    host.run("stray", f"docker/{JOB}", JOB, tier="batch")
    host.make("stray.slice")
    host.write("containerLabel: tier=batch, qosClass: BE", "slice: stray.slice, qosClass: BE")
    listed = host.open().look()

    assert not any(is_best_effort(pod) for pod in listed.pods)
    assert host.seen() == {"stray.slice": False, JOB: False}
    advice = "it is counted as LS, and is not limited; run it in batch.slice"
    assert sorted(note.partition(": ")[2] for note in listed.notes) == [
        f"containerLabel tier=batch: stray is outside batch.slice; {advice}",
        f"slice stray.slice: stray.slice is outside batch.slice; {advice}",
    ]


def test_what_matches_nothing_or_is_held_all_the_same_is_told(host) -> None:
    host.run("job", f"batch.slice/{JOB}", JOB, tier="web")
    host.write(
        "slice: wob.slice, qosClass: LS",
        "slice: batch.slice/gone.service, qosClass: BE",
        "containerLabel: tier=wob, qosClass: LS",
        "containerLabel: tier=web, qosClass: LS",
    )
    remarks = {(one.what, one.why) for one in _remarks(host.open())}

    assert remarks == {
        ("slice wob.slice", "no such cgroup now"),
        ("slice batch.slice/gone.service", "no such cgroup now"),
        ("containerLabel tier=wob", "no running container has this label"),
        ("containerLabel tier=web", "job is in batch.slice"),
    }


def test_a_container_in_a_slice_that_counts_does_not_count_twice(host) -> None:
    host.run("inside", f"web.slice/docker-{WEB}.scope", WEB, tier="web")
    host.write("slice: web.slice, qosClass: LS", "containerLabel: tier=web, qosClass: LS")
    pods = host.open()

    assert [pod.uid for pod in pods.look().pods] == ["web.slice"]
    assert ("containerLabel tier=web", "inside is in slice web.slice") in {(one.what, one.why) for one in pods.remarks}


def test_without_a_best_effort_group_nothing_is_held_until_there_is_one(host, tmp_path) -> None:
    host.write("slice: web.slice, qosClass: LS")
    host.file.write_text(host.file.read_text().replace("batch.slice", "later.slice"))
    pods = host.open()

    assert [pod.uid for pod in pods.look().pods] == ["web.slice"]
    assert [(one.what, one.why) for one in pods.remarks] == [("bestEffort later.slice", "no such cgroup now")]
    host.make("later.slice/x.service")
    assert sorted(pod.uid for pod in pods.look().pods) == ["later.slice:x.service", "web.slice"]
    assert pods.remarks == []


def test_while_docker_is_away_slices_work_and_known_containers_stay(host, docker) -> None:
    host.run("web", f"docker/{WEB}", WEB, tier="web")
    host.write("slice: web.slice, qosClass: LS", "containerLabel: tier=web, qosClass: LS")
    pods = host.open()
    assert sorted(pod.uid for pod in pods.look().pods) == [WEB, "web.slice"]
    asked = len(docker.asked)
    pods.look()
    assert docker.asked[asked:] == ["/containers/json"], "where a container's group is, is asked once"
    docker.close()

    host.write(
        "slice: web.slice, qosClass: LS", "containerLabel: tier=web, qosClass: LS", "containerLabel: x, qosClass: LS"
    )
    listed = pods.look()

    assert sorted(pod.uid for pod in listed.pods) == [WEB, "web.slice"]
    assert len(listed.notes) == 1, "what runs with a label cannot be known"
    assert (
        f"Docker at {docker.path}: Connection refused; containers cannot be found by label; slices can"
        in listed.notes[0]
    )


def test_docker_is_not_asked_where_no_label_is_given(host, docker) -> None:
    host.write("slice: web.slice, qosClass: LS")
    host.open().look()

    assert docker.asked == []


def test_a_file_that_is_wrong_by_now_leaves_the_last_good_one_in_force(host) -> None:
    host.write("slice: web.slice, qosClass: LS")
    pods = host.open()
    host.write("slice: web.slice, qosClass: gold")
    assert [pod.uid for pod in pods.look().pods] == ["web.slice"]
    assert "qosClass: gold" in pods.refused
    host.file.write_text("bestEffort: other.slice\n")
    pods.look()
    assert (
        "bestEffort: other.slice: accepted: batch.slice, as at the start; to change it, restart the agent"
        in pods.refused
    )
    host.write()
    host.make("batch.slice/x.service")

    assert [pod.uid for pod in pods.look().pods] == ["batch.slice:x.service"]
    assert pods.refused == ""


@pytest.mark.parametrize(
    ("body", "says"),
    [(b"no JSON", "/containers/json: "), (b'[{"Id": 7}]', "$[0].Id"), (b"[" * 100_000, "/containers/json: ")],
)
def test_docker_that_says_something_else_is_refused(docker, body, says) -> None:
    docker.broken = body

    with pytest.raises(DockerError) as refused:
        Docker(docker.path).running()
    assert says in str(refused.value)


def test_a_socket_that_is_not_there_is_named(tmp_path) -> None:
    with pytest.raises(DockerError, match=f"Docker at {tmp_path}/none: No such file"):
        Docker(f"{tmp_path}/none").running()


def test_containers_that_have_ended_between_two_questions_are_nobodys(docker) -> None:
    docker.containers = [Running(id=WEB, name="web", labels=None)]

    assert [(one.name, one.labels) for one in Docker(docker.path).running()] == [("web", {})]
    assert Docker(docker.path).pid(WEB) is None, "created, or ended just now"
    assert Docker(docker.path).pid(DB) is None


def _remarks(pods: HostPods):
    pods.look()
    return pods.remarks
