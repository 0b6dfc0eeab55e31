"""Figures: what Kueue and Slacktide admit a second on one machine, and the CPU of an admission, of all processes.

Jobs wait until their ClusterQueues get quota for all. The time is from then until the last Job is unsuspended. No
Job controller runs, so no pod costs anything.
"""

import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psutil

from bench.rig import CannotRunError, Rig
from bench.rows import Row, told
from testbed.brokers import running
from testbed.cluster.api_server import ApiServer
from testbed.cluster.kueue_record import Seen
from testbed.cluster.queue_rig import Queue, install
from testbed.cluster.real_kueue import Kueue
from testbed.deciders import decider
from testbed.parts import running_part
from testbed.rungs import lacks_api, lacks_kueue

JOBS, BRIEF_JOBS = 1_000, 40
QUEUES = (1, 10)
AT_ONCE = 8
SETTLED_S = 5.0
"""After the last Job was made, so that each was tried without quota."""
WAIT_S = 600.0
POLL_S = 0.1
Processes = dict[str, int]
"""Pids by name."""


def measure(rig: Rig) -> list[Row]:
    """Each with one ClusterQueue and with ten: Kueue admits one workload of each in a cycle."""
    if (lack := lacks_api() or lacks_kueue()) is not None:
        raise CannotRunError(str(lack))
    rows = []
    for queues in QUEUES:
        for name, start in (("Kueue", _kueue), ("Slacktide", _slacktide)):
            rig.say(f"kueue: {name}, {queues} ClusterQueues")
            with running(ApiServer) as api, start(rig, api) as processes:
                rows.append(_admitted(rig, api, name, queues, processes))
    return rows


@contextlib.contextmanager
def _kueue(_: Rig, api: ApiServer) -> Iterator[Processes]:
    kueue = Kueue(api)
    kueue.start()
    try:
        yield {"Kueue": kueue.pid}
    finally:
        kueue.stop()


@contextlib.contextmanager
def _slacktide(rig: Rig, api: ApiServer) -> Iterator[Processes]:
    broker = rig.kafka()
    api.post("/api/v1/namespaces", {"metadata": {"name": "slacktide"}})
    install(api)
    given = ["--bootstrap", broker.bootstrap, "--kubeconfig", str(api.kubeconfig), "--namespace", "slacktide"]
    with (
        decider(broker.bootstrap, rig.folder) as deciding,
        running_part(rig.folder, "bridge", *given, "--queue") as bridge,
    ):
        yield {"decider": deciding.process.pid, "bridge": bridge.process.pid, "Kafka": broker.pid}


def _admitted(rig: Rig, api: ApiServer, name: str, queues: int, processes: Processes) -> Row:
    count = BRIEF_JOBS if rig.brief else JOBS
    made = [Queue(api, "0") for _ in range(queues)]
    with ThreadPoolExecutor(AT_ONCE) as threads:
        list(threads.map(lambda number: made[number % queues].job(f"job-{number:05}"), range(count)))
    jobs = Seen(api, "/apis/batch/v1/jobs")
    api.wait(lambda: len(jobs.objects) == count, "all Jobs are seen")
    time.sleep(SETTLED_S)
    watched = processes | {"API server": api.api.pid, "etcd": api.etcd.pid}
    before, began_s = _cpu_s(watched), time.monotonic()
    for queue in made:
        queue.quota(str(count))
    while sum(not one["spec"].get("suspend") for one in jobs.objects.values()) < count:
        if time.monotonic() > began_s + WAIT_S:
            raise CannotRunError(f"{name}: not all {count} Jobs within {WAIT_S:g} s")
        time.sleep(POLL_S)
    took_s = max(jobs.changed_s.values()) - began_s
    spent = {of: (cpu_s - before[of]) / count * 1e3 for of, cpu_s in _cpu_s(watched).items()}
    cpu = ", ".join(f"{of} {ms:.1f}" for of, ms in spent.items())
    return told(f"{name}, {queues} ClusterQueue{'s' if queues > 1 else ''}: admissions",
                f"{count / took_s:.1f}/s; CPU of one, ms: {cpu}; load {rig.conditions()['load_1m']}",
                n=count, per_s=count / took_s, cpu_ms=spent)  # fmt: skip


def _cpu_s(pids: Processes) -> dict[str, float]:
    times = {name: psutil.Process(pid).cpu_times() for name, pid in pids.items()}
    return {name: each.user + each.system for name, each in times.items()}
