"""The console as a process, and Debian's Chromium that looks at its pages."""

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from playwright.sync_api import Browser, Page, expect, sync_playwright

from slacktide.deploy.console.history.recorder import TOPICS, Recorder
from slacktide.deploy.console.history.store import Store
from slacktide.schemas.codec import encode
from slacktide.schemas.inventory import Pod, Processor, Resources
from slacktide.schemas.job_pod import JobEviction, JobSpec
from slacktide.schemas.outcome import Spent
from slacktide.schemas.topics import BY_NAME, JOB_STATUS, OUTCOME
from slacktide.streams.kafka import partition_of
from slacktide.streams.records import Record
from testbed.brokers import free_port
from testbed.chains import Chain, evicted, logged
from testbed.cluster.programs import answers
from testbed.job_events import SLIDE, folded
from testbed.job_events import pod as pod_of
from testbed.one_machine import eventually
from testbed.parts import SLACKTIDE
from testbed.queue_log import FLAVOR, Log, local, queue, term, workload
from testbed.reaching import needs
from testbed.samples import FACTS, PODS, START_MS
from testbed.services import INSENSITIVE, LEARNING, profile, services
from testbed.spawning import spawn

END_S = 12.0
WAIT_MS = 15_000
"""The machine is shared."""
expect.set_options(timeout=WAIT_MS)
HTML = "<img src=x onerror=alert(1)>"
HOSTILE = (HTML, "\u202egnp.exe", "\x1b[2Jred")
"""A name that a page could take for HTML, one that turns the direction of writing, one that steers terminals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    url: str


@contextlib.contextmanager
def console(folder: Path, bootstrap: str, *more: str, store: Path | None = None) -> Iterator[str]:
    url, log = f"127.0.0.1:{free_port()}", folder / "console.log"
    arguments = ["--bootstrap", bootstrap, "--listen", url, "--store", str(store or folder / "history"), *more]
    process = spawn([SLACKTIDE, "console", *arguments], log)
    try:
        assert eventually(lambda: answers(f"http://{url}/live"), 60), log.read_text()
        yield f"http://{url}"
        assert process.poll() is None, log.read_text()
    finally:
        process.terminate()
        assert process.wait(END_S) == 0, log.read_text()


@needs("browser")
@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        sandboxed = [] if os.geteuid() else ["--no-sandbox"]
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=sandboxed)
        yield browser
        browser.close()


@contextlib.contextmanager
def page_of(browser: Browser, url: str, **context: object) -> Iterator[Page]:
    """A page in a context of its own; neither errors nor what the policy of contents refuses may come up in it."""
    complaints: list[str] = []
    given = {"viewport": {"width": 1280, "height": 900}, "locale": "en-US", "timezone_id": "UTC"} | context
    opened = browser.new_context(**given)  # type: ignore[arg-type]
    page = opened.new_page()
    page.set_default_timeout(WAIT_MS)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda said: complaints.append(said.text) if said.type in {"error", "warning"} else None)
    page.on("dialog", lambda dialog: complaints.append(f"dialog {dialog.message}"))
    try:
        page.goto(url)
        yield page
    finally:
        opened.close()
    known = re.compile(r"the server responded with a status of (404|503)|ERR_(CONNECTION|INCOMPLETE|EMPTY)")
    assert not [one for one in complaints if not known.search(one)], complaints


def texts(page: Page, selector: str) -> Sequence[str]:
    return page.locator(selector).all_inner_texts()


def record(path: Path, nodes: Sequence[str], span_s: int) -> None:
    """Minutes of nodes as a follower records them; a pod is evicted on each, and two pods have a CPU of their own.

    Profiles of services are there, too; one has a hostile name.
    """
    records = services(None, [profile(), profile(f"shop/{HTML}", **LEARNING), profile("shop/calm", **INSENSITIVE)])
    processors = [Processor(cpu=cpu, core=cpu, socket=0, numa_node=cpu // 2) for cpu in range(4)]
    owners = [
        Pod(uid=qos, namespace="shop", name=f"{qos.lower()}-0", qos_label=qos, kube_qos="Guaranteed", cpuset=cpu,
            requests=Resources(cpu_milli=1_000))
        for qos, cpu in (("LSE", "0"), ("LSR", "1"))
    ]  # fmt: skip
    for name in nodes:
        chain = Chain(facts=msgspec.structs.replace(FACTS, name=name, processors=processors), pods=[*PODS, *owners])
        chain.run(1, span_s)
        records += chain.records
        for number, pod in enumerate(("etl-x2lqp", *HOSTILE), start=1):
            act = evicted(span_s - 30 + number, pod, node=name, spent=Spent(evictions=number))
            records.append(logged(act, OUTCOME, key=name, offset=number, at_ms=act.acted_ms))
    stored(path, records)


async def jobs_and_queue() -> list[Record]:
    """Records of Jobs by the real fold, and of a queue of 2 CPUs by the real decider.

    ``etl`` runs and lost a pod to an eviction, ``bad`` has failed, and one with a hostile name is done. Workload w1
    preempts w0, which holds all quota, and w2 waits.
    """
    text = "threshold_pct 70, observed 91"
    eviction = JobEviction(node="alpha", rule="BECPUEvict", threshold=text, acted_ms=START_MS)
    lost = pod_of("etl-2", "Failed", node="alpha", cpu_milli=2_000, started_ms=1, ended_ms=30_001, eviction=eviction)
    statuses = [
        folded(JobSpec(completions=4), pod_of("etl-0", "Succeeded"), pod_of("etl-1"), lost, job="etl"),
        folded(JobSpec(completions=2, failure_rules=SLIDE), pod_of("bad-0", "Failed", code=1), job="bad"),
        folded(JobSpec(completions=1), pod_of("html-0", "Succeeded"), job=HTML),
    ]
    log = Log()
    log.put(FLAVOR, queue("gpu", "2"), local("gpu"), workload(0, "gpu", "2"))
    decider = term(log, "first")
    await decider.begin(None)
    await decider.act()
    log.put(workload(1, "gpu", "2", priority=5), workload(2, "gpu", "1"))
    await decider.listen()
    await decider.act()
    jobs = [
        Record(topic=JOB_STATUS.name, partition=0, offset=offset, timestamp_ms=START_MS, key=one.uid.encode(),
               value=encode(one))
        for offset, one in enumerate(statuses)
    ]  # fmt: skip
    return [*jobs, *log.records]


def stored(path: Path, records: Sequence[Record], until_s: int | None = None) -> Recorder:
    """Make the file that a follower would of these records, up to the last whole minute, or to one earlier.

    Gives the recorder, which has what is not stored.
    """
    store = Store(path)
    recorder = Recorder(START_MS // 1_000, {}, first=True)
    for record in sorted(records, key=lambda one: one.timestamp_ms):
        if record.topic in {topic.name for topic in TOPICS}:
            count = BY_NAME[record.topic].partitions
            number = 0 if count == 1 else partition_of((record.key or b"").decode(), count)
            recorder.take(msgspec.structs.replace(record, partition=number))
    end_s = recorder.second_s if until_s is None else START_MS // 1_000 + until_s
    for minute in [one for one in recorder.minutes if one.start_s < end_s]:
        store.add(minute)
        recorder.minutes.remove(minute)
    store.close()
    return recorder
