"""PSI of each pod: what is read of its cgroup, and where it is shown."""

from pathlib import Path, PurePosixPath

import msgspec
from prometheus_client import REGISTRY

from slacktide.agents.node.cgroup.pod_pressure import PodPressureReader
from slacktide.agents.node.metrics import AgentMetrics
from slacktide.schemas.inventory import Pod, Resources
from slacktide.schemas.sample import PodPressure
from slacktide.schemas.sample_columns_codec import encoded, to_sample
from slacktide.streams.analysis.explain.held import waiting_findings
from slacktide.streams.analysis.explain.node_log import node_log
from testbed.chains import Chain
from testbed.samples import START_MS

SOME = "some avg10={} avg60=0.00 avg300=0.00 total=1\n"
FULL = "full avg10={} avg60=0.00 avg300=0.00 total=1\n"
S = 1_000_000_000


def pod(name: str) -> Pod:
    return Pod(
        uid=f"uid-{name}", namespace="jobs", name=name, phase="Running", requests=Resources(), limits=Resources()
    )


def group_of(uid: str) -> PurePosixPath | None:
    return None if uid == "uid-gone" else PurePosixPath(uid)


def test_averages_are_read_each_ten_seconds(tmp_path: Path) -> None:
    files = {"cpu": SOME.format("12.34") + FULL.format("1.00"), "memory": SOME.format("0.00") + FULL.format("0.00")}
    (tmp_path / "uid-a").mkdir()
    for kind, text in files.items():
        (tmp_path / f"uid-a/{kind}.pressure").write_text(text)
    reader = PodPressureReader(tmp_path, group_of)
    read = PodPressure(uid="uid-a", cpu_some_pct=12.34, cpu_full_pct=1.0, mem_some_pct=0.0, mem_full_pct=0.0)
    pods = [pod("a"), pod("b"), pod("gone")]
    assert reader.due(pods, 0) == [read], "of others there is no file"
    assert reader.due(pods, 9 * S) is None
    assert reader.due(pods, 10 * S) == [read]


def test_an_older_kernel_has_no_line_of_all_processes_for_cpu(tmp_path: Path) -> None:
    (tmp_path / "uid-a").mkdir()
    (tmp_path / "uid-a/cpu.pressure").write_text(SOME.format("5.00"))
    assert PodPressureReader(tmp_path, group_of).due([pod("a")], 0) == [PodPressure(uid="uid-a", cpu_some_pct=5.0)]


def test_a_sample_carries_it_and_explain_pod_describes_the_newest() -> None:
    chain = Chain()
    its = chain.pods[0]
    for seq, pct in ((1, 50.0), (2, 12.3)):
        pressure = PodPressure(uid=its.uid, cpu_some_pct=pct, mem_some_pct=0.0, io_some_pct=3.1, io_full_pct=2.8)
        chain.run(seq, seq, pod_pressure=[pressure])
    chain.run(3, 3)
    log = node_log(chain.node, chain.records)
    assert [one.text for one in waiting_findings(log, its, START_MS + 3_000)] == [
        "waited in 10 s: for CPU 12.3%, for memory 0%, for IO 3.1% (all processes 2.8%) of the time"
    ]
    assert list(waiting_findings(log, its, START_MS + 60_000)) == [], "it is outdated"
    assert list(waiting_findings(log, pod("other"), START_MS + 3_000)) == []
    written = next(one.body for one in log.samples if one.body.seq == 2)
    again = to_sample(encoded(written, chain.pods), lambda _: chain.pods)
    assert again.pod_pressure == written.pod_pressure


def test_series_of_a_pod_end_with_it() -> None:
    metrics, pods = AgentMetrics("psi-node"), [pod("a"), pod("b")]
    figures = [PodPressure(uid=one.uid, mem_full_pct=7.5) for one in pods]
    metrics.pod_pressure(figures, pods)

    def shown(name: str) -> float | None:
        labels = {"node": "psi-node", "namespace": "jobs", "pod": name, "resource": "memory", "degree": "full"}
        return REGISTRY.get_sample_value("slacktide_agent_pod_pressure_percent", labels)

    assert (shown("a"), shown("b")) == (7.5, 7.5)
    metrics.pod_pressure([msgspec.structs.replace(figures[0], mem_full_pct=0.5)], pods)
    assert (shown("a"), shown("b")) == (0.5, None)
    metrics.pod_pressure([], pods)
    assert shown("a") is None
