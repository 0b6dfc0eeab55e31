"""Make the pictures of docs/console.md: ``PYTHONPATH=tests python tests/browser/pictures.py docs``.

The figures are those of a modelled day on many nodes, decided by a real worker. They are nobody's measurement.
"""

import math
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
from playwright.sync_api import Browser

from slacktide.deploy.console.run import FILE
from slacktide.schemas.codec import decode
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.inventory import Pod, Processor, Resources
from slacktide.schemas.outcome import Spent
from slacktide.schemas.sample import Limits, NodeUse, PodUse
from slacktide.schemas.topics import COMMAND, OUTCOME
from slacktide.streams.decisions.suppress.cpu_suppress_cpuset import ANNOTATION_SYSTEM_QOS
from slacktide.streams.records import Record
from testbed.brokers import free_port
from testbed.chains import Chain, evicted, logged, outcome
from testbed.console import chromium, console, page_of, stored
from testbed.pictures import shown, with_words
from testbed.samples import BATCH, FACTS, GIB, SERVICE, START_MS

NODES, SPAN_S, SEED = 60, 300, 7
CPUS, GUARDED = 16, 40
AT_MS = START_MS + (SPAN_S - 30) * 1_000
WIDE, HIGH, TO_CPUS = 1_280, 800, 1_390
"""Pixels; the last one shows the page of a node down to what each CPU is for."""
OWNERS = [
    Pod(
        uid=name, namespace="shop", name=name, qos_label=qos, kube_qos="Guaranteed", cpuset=cpus,
        requests=Resources(cpu_milli=milli, mem_bytes=4 * GIB),
    )
    for name, qos, cpus, milli in (("orders-db-0", "LSE", "0-1,8", 3_000), ("cart-cache-0", "LSR", "4,12", 2_000))
]  # fmt: skip
"""They have CPUs of their own; of the LSE pod's last core one stays idle."""
PROCESSORS = [
    Processor(cpu=cpu, core=cpu % (CPUS // 2), socket=0, numa_node=cpu % (CPUS // 2) // (CPUS // 4))
    for cpu in range(CPUS)
]
"""Two zones of four cores, with two CPUs each."""
SYSTEM = 7
SHARED = [cpu for cpu in range(CPUS) if cpu not in {0, 1, 8, 9, SYSTEM}]
"""Where best-effort pods run: neither on cores of the LSE pod, nor where SYSTEM pods do."""


def main() -> None:
    """Record, look, keep the pictures."""
    folder = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as made:
        store = Path(made)
        stored(store / FILE, [record for number in range(NODES) for record in _node(number)])
        with console(store, f"127.0.0.1:{free_port()}", store=store) as url, chromium() as browser:
            _look(browser, f"{url}/#/cluster?at={AT_MS}", HIGH, folder / "console-cluster.png")
            _look(browser, f"{url}/#/node/node-004?span=300000&at={AT_MS}", TO_CPUS, folder / "console-node.png")


def _look(browser: Browser, url: str, high: int, picture: Path) -> None:
    with page_of(browser, url, color_scheme="light", viewport={"width": WIDE, "height": high}) as page:
        page.wait_for_selector(".figures .number")
        page.wait_for_timeout(1_000)
        picture.write_bytes(with_words(page.screenshot(), shown(page.inner_text("body"))))


def _node(number: int) -> Iterator[Record]:
    """A service with waves and spikes, batch work that takes what it gets, limits carried out as decided."""
    draw = random.Random(SEED + number)
    amounts = Resources(cpu_milli=CPUS * 1_000, mem_bytes=64 * GIB)
    name = f"node-{number:03}"
    service = msgspec.structs.replace(SERVICE, requests=Resources(cpu_milli=8_000, mem_bytes=24 * GIB))
    facts = msgspec.structs.replace(
        FACTS, name=name, capacity=amounts, allocatable=amounts, processors=PROCESSORS,
        annotations={ANNOTATION_SYSTEM_QOS: f'{{"cpuset": "{SYSTEM}"}}'},
    )  # fmt: skip
    chain = Chain(facts=facts, pods=[service, *OWNERS, BATCH])
    base, swing, phase = draw.uniform(1_500, 7_000), draw.uniform(500, 2_500), draw.uniform(0, 7)
    wants = draw.uniform(0, 9_000)
    silent_s = SPAN_S - 80 if number in {23, 51} else SPAN_S
    limit_milli, raised_s = 2_000, -10
    for seq in range(1, silent_s):
        spike = 3_500 if number % 5 == 4 and 180 <= seq < 205 else 0
        ls = round(max(300, base + swing * math.sin(seq / 40 + phase) + draw.gauss(0, 150)) + spike)
        be = round(min(wants + draw.gauss(0, 80), limit_milli)) if wants > 300 else 100
        chain.take(
            seq,
            use=NodeUse(cpu_milli=ls + be + 350, mem_bytes=round((18 + wants / 500) * GIB)),
            pod_use=[
                PodUse(uid="ls", cpu_milli=ls - ls // 4 - ls // 8, mem_bytes=8 * GIB),
                *(
                    PodUse(uid=pod.uid, cpu_milli=ls // part, mem_bytes=3 * GIB)
                    for pod, part in zip(OWNERS, (4, 8), strict=True)
                ),
                PodUse(uid="be", cpu_milli=be, mem_bytes=round((3 + wants / 600) * GIB), best_effort_group=True),
            ],
            limits=Limits(be_cfs_quota_us=limit_milli * 100, be_cpuset=SHARED),
            since_raise_ms=(seq - raised_s) * 1_000,
        )
        before = limit_milli
        for hold in (one for command in _answers(chain, seq) for one in command.hold):
            limit_milli = (hold.limits.be_cfs_quota_us or 0) // 100
            raised_s = seq if limit_milli > before else raised_s
        act = outcome(
            seq,
            node=name,
            origin="guard" if number == GUARDED and seq > SPAN_S - 60 else "stream",
            reason="no answer within 1 s" if number == GUARDED and seq > SPAN_S - 60 else "",
            result="unchanged" if limit_milli == before else "applied",
            age_ms=draw.randint(6, 40),
            before=Limits(be_cfs_quota_us=before * 100),
            after=Limits(be_cfs_quota_us=limit_milli * 100),
        )
        chain.put(act, OUTCOME, at_ms=START_MS + seq * 1_000 + 40)
    yield from chain.records
    if number % 5 == 4:
        act = evicted(200, f"etl-{number}", node=name, spent=Spent(evictions=1))
        yield logged(act, OUTCOME, key=name, offset=100_000, at_ms=act.acted_ms)


def _answers(chain: Chain, seq: int) -> list[NodeCommand]:
    last = [record for record in chain.records[-6:] if record.topic == COMMAND.name]
    commands = [decode(record.value or b"", NodeCommand) for record in last]
    return [command for command in commands if command.seq == seq]


if __name__ == "__main__":
    main()
