"""The demo as a user runs it, only shorter: real and virtual, stopped halfway, with a part that dies."""

import json
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from slacktide.deploy.demo.workload import sweep
from testbed.one_machine import eventually

pytestmark = pytest.mark.demo
MOUNT = Path("/sys/fs/cgroup")
ENDS_WITHIN_S = 20.0
SHORT = """
import sys
from pathlib import Path
from slacktide.deploy.demo.conditions import conditions
from slacktide.deploy.cli.demo import DemoSettings, Session
nodes = int(sys.argv[2]) or None
scenario = sys.argv[3]
options = DemoSettings(
    seconds=4.0, nodes=nodes, plain=True, report=Path(sys.argv[1]), scenario=scenario, no_console=True
)
plan = conditions(4.0, blocks=1, compared_s=1.5, scenario=scenario)
sys.exit(Session(options, [plan[2], plan[1]] if scenario == "memory" else plan).run() or None)
"""
"""One block of the usual three, its parts shorter; of the memory scenario what has batch work, and first what leaves
the service its data."""


def short_run(report: Path, nodes: int, scenario: str = "cpu") -> tuple[dict, str, int]:
    """Report, output and process id of a short run; ``nodes`` 0: the real machine."""
    command = [sys.executable, "-c", SHORT, str(report), str(nodes), scenario]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as demo:
        said, _ = demo.communicate(timeout=100)
    assert demo.returncode == 0, said[-3000:]
    return json.loads(report.read_text()), said, demo.pid


@contextmanager
def running(*arguments: str, console: bool = False) -> Iterator[tuple[subprocess.Popen[str], Callable[[str], str]]]:
    """A demo, and what waits for a line of its output."""
    command = [sys.executable, "-m", "slacktide.deploy.cli.main", "demo", "--plain", *arguments]
    command += [] if console else ["--no-console"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as demo:
        assert demo.stdout is not None
        try:
            yield demo, lambda pattern: next((line for line in demo.stdout if re.search(pattern, line)), "")
        finally:
            demo.kill()


def left_behind(pid: int) -> list[str]:
    """Folders of a demo, and processes that were told of them. Other demos may run beside it."""
    mark = f"slacktide-demo-{pid}-"
    lines = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
    return [*map(str, Path(tempfile.gettempdir()).glob(f"{mark}*")), *(line for line in lines if mark in line)]


def eventually_nothing(left: Callable[[], list[str]]) -> bool:
    until_s = time.monotonic() + 60
    while left() and time.monotonic() < until_s:
        time.sleep(0.05)
    return not left()


def fetched(url: str) -> bytes:
    with suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
        return bytes(answer.read())
    return b""


def groups() -> list[str]:
    return [str(group) for group in MOUNT.glob("*/slacktide-demo")]


@pytest.mark.kernel
def test_the_real_demo_closes_the_loop_and_leaves_nothing_behind(tmp_path):
    """Real processes in real groups; a limit decided through the log is in the kernel."""
    report, said, pid = short_run(tmp_path / "demo.json", nodes=0)

    assert report["mode"] == "real"
    assert said.startswith("slacktide demo: real: root, cgroup v1")
    assert report["applied"] >= 1
    assert report["decided_by"]["stream"] >= 1
    assert report["batch_cpu_seconds"] > 0
    assert report["ls_requests"] > 100
    assert all(value is not None for value in report["ls_slowdown"].values())
    assert eventually_nothing(lambda: left_behind(pid) + groups()), left_behind(pid) + groups()


@pytest.mark.nightly
@pytest.mark.kernel
def test_batch_work_takes_a_services_memory_under_weights_and_not_under_control(tmp_path):
    """Real page cache in real groups: the agent's memory limit of batch pods keeps the service's data there."""
    report, said, pid = short_run(tmp_path / "demo.json", nodes=0, scenario="memory")
    weights, controlled = (report["shares"][name]["service_mem_bytes"] >> 20 for name in ("weights", "controlled"))

    assert weights < 90
    assert controlled > 120
    assert "MiB of memory" in said
    assert eventually_nothing(lambda: left_behind(pid) + groups()), left_behind(pid) + groups()


def test_the_virtual_demo_closes_the_loop_on_each_node(tmp_path):
    """The same agents on modelled kernels; the model has the order of the conditions that a real one has."""
    report, said, pid = short_run(tmp_path / "demo.json", nodes=2)
    slowdown = report["ls_slowdown"]

    assert report["mode"] == "virtual"
    assert said.startswith("slacktide demo: virtual: as asked: 2 virtual nodes")
    assert report["decided_by"]["stream"] >= 2
    assert 1.0 < slowdown["controlled"] < slowdown["uncontrolled"]
    assert report["utilization"]["ls_alone"] < 0.65 < report["utilization"]["colocated"] < 0.98
    assert eventually_nothing(lambda: left_behind(pid)), left_behind(pid)


@pytest.mark.kernel
def test_ctrl_c_ends_in_a_summary_and_leaves_nothing_behind(tmp_path):
    """Also before there is anything to sum up: then the exit code says so."""
    report = tmp_path / "demo.json"
    with running("--report", str(report)) as (demo, line_with):
        assert line_with("condition=uncontrolled.*stage=measuring")
        demo.send_signal(signal.SIGINT)

        assert line_with("^alone .* 1.00 x")
        assert line_with("Error: The loop did not close: the demo ended before")
        assert demo.wait(ENDS_WITHIN_S) == 1
    assert json.loads(report.read_text())["ls_slowdown"]["controlled"] is None
    assert eventually_nothing(lambda: left_behind(demo.pid) + groups()), left_behind(demo.pid) + groups()


def test_a_worker_that_dies_ends_the_demo_with_its_name():
    """One clear sentence, not a demo without a loop."""
    with running("--nodes", "1") as (demo, line_with):
        assert line_with("by=stream")
        worker = next(child for child in psutil.Process(demo.pid).children() if "stream" in child.cmdline())
        worker.kill()

        assert "the stream worker ended (killed by SIGKILL)" in line_with("^Error: ")
        assert demo.wait(ENDS_WITHIN_S) == 1


def test_a_demo_that_is_killed_takes_its_processes_with_it():
    """However it ends: the kernel ends what it started. Until then its console shows the node."""
    with running("--nodes", "1", console=True) as (demo, line_with):
        url = line_with("^slacktide demo: console: ").split()[-1]
        assert line_with("by=(guard|stream)")
        assert eventually(lambda: b'"virtual-1"' in fetched(f"{url}/api/cluster"))
        children = psutil.Process(demo.pid).children(recursive=True)
        demo.kill()
        _, alive = psutil.wait_procs(children, timeout=5)

        assert len(children) >= 4
        assert alive == []
    sweep(Path(tempfile.gettempdir()))
    assert eventually_nothing(lambda: left_behind(demo.pid)), left_behind(demo.pid)
