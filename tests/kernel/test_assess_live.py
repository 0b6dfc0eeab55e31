"""`slacktide assess` on a live Prometheus agrees with what Slacktide itself published of the same node and time."""

import json
import statistics
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from kernel.groups import CONTAINER, V1, Groups, on
from kernel.test_real_predictions import DUTY
from kernel.test_stack_on_real_kernel import BATCH, NODE, READY_S, SERVICE, inventory
from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.codec import decode
from slacktide.schemas.topics import ALLOCATABLE, SAMPLE
from slacktide.streams.analysis.replay.lines import header_of, records_of
from slacktide.streams.samples import SampleReader
from testbed.exporter import ExportedPod, Exporter
from testbed.one_machine import SLACKTIDE, Up, policy
from testbed.recorded_cluster import prometheus

pytestmark = [pytest.mark.alone, pytest.mark.prometheus]

CPUS = 64
"""What the node is described with: there is always something left to sell."""
SERVICE_MILLI = 400
RECORDED_S, WINDOW_S, STEP_S = 40, 20, 5
SOLD_CORES, USED_CORES = 0.5, 0.05
"""How far both may be from each other: samples and scrapes are a second apart."""


@on(V1)
def test_it_reports_what_slacktide_published(groups: Groups, tmp_path: Path) -> None:
    groups.start(groups.add_pod("burstable", SERVICE), DUTY.format(milli=SERVICE_MILLI))
    groups.start(groups.add_pod("besteffort", BATCH))
    amounts = {"cpu": str(CPUS), "memory": str(psutil.virtual_memory().total)}
    described = inventory()
    described["items"][0]["status"] = {"capacity": amounts, "allocatable": amounts}
    for name, content in {"inventory": described, "policy": policy()}.items():
        (tmp_path / f"{name}.yaml").write_text(json.dumps(content))
    files = [part for name in ("inventory", "policy") for part in (f"--{name}", str(tmp_path / f"{name}.yaml"))]
    pods = [
        ExportedPod(name="service", group=f"{groups.kubepods}/burstable/pod{SERVICE}/{CONTAINER}", cpu_request=0.5),
        ExportedPod(
            name="batch", group=f"{groups.kubepods}/besteffort/pod{BATCH}/{CONTAINER}", priority_class="koord-batch"
        ),
    ]
    with (
        Exporter(NODE, CPUS, int(amounts["memory"]), pods) as exporter,
        Up(tmp_path, "--node-name", NODE, "--kubepods", groups.kubepods, *files) as up,
        prometheus(tmp_path, None, scraped=exporter.address) as url,
    ):
        up.wait_logged("by the stream", within_s=READY_S)
        time.sleep(RECORDED_S)
        assessed = _slacktide(
            "assess", "--prometheus", url, "--since", f"{RECORDED_S - WINDOW_S}s", "--step", f"{STEP_S}s",
            "--window", f"{WINDOW_S}s", "--policy", tmp_path / "policy.yaml", "--output", "json",
        )  # fmt: skip
        _slacktide("topics", "export", tmp_path / "live.jsonl", "--bootstrap", up.bootstrap)
    report = json.loads(assessed)
    steps = range(report["start_s"] * 1_000, report["end_s"] * 1_000 + 1, STEP_S * 1_000)
    sold, used = _published(tmp_path / "live.jsonl", steps)
    cluster = report["cluster"]

    assert cluster["cpu"]["p50"] == pytest.approx(sold, abs=SOLD_CORES)
    assert cluster["used_cores"] == pytest.approx(used, abs=USED_CORES)


def _slacktide(*arguments: str | Path) -> str:
    done = subprocess.run([SLACKTIDE, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _published(file: Path, steps_ms: range) -> tuple[float, float]:
    """Cores on sale meanwhile, the median, and cores that the service used, the mean of each step's window."""
    sold, used, samples = [], [], SampleReader()
    with file.open("rb") as lines:
        header = header_of(lines.readline(), str(file))
        for record in records_of(lines, str(file), topics=header.topics):
            if record.topic == SAMPLE.name:
                sample = samples.read(record)
                milli = [use.cpu_milli or 0 for use in sample.pod_use if use.uid == SERVICE]
                used += [(sample.observed_ms, each, sample.interval_ms) for each in milli]
            elif record.topic == ALLOCATABLE.name and record.value and record.timestamp_ms >= steps_ms[0]:
                sold.append((decode(record.value, NodeAllocatable).batch_cpu_milli or 0) / 1_000)
    windows = [[one for one in used if end_ms - WINDOW_S * 1_000 < one[0] <= end_ms] for end_ms in steps_ms]
    means = [statistics.fmean([one[1] for one in window], [one[2] for one in window]) for window in windows]
    return statistics.median(sold), statistics.fmean(means) / 1_000
