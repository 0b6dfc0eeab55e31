"""Figures: Koordinator 1.8.0 and Slacktide on one real node, each alone, in turns."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from bench.koordinator.block import block
from bench.koordinator.ends import leak, policy, silence
from bench.koordinator.pods import Pods
from bench.koordinator.records import NAMES, Block, Recorded
from bench.koordinator.systems import Start, koordinator, slacktide
from bench.proc import OwnProc
from bench.rig import CannotRunError, Rig
from bench.rows import Row, told
from slacktide.deploy.demo.figures import percentile
from testbed.cluster.real_koordinator import install
from testbed.cluster.real_node import RealNode, running_node
from testbed.cluster.traces import CGROUPS
from testbed.rungs import lacks_kafka, lacks_koordinator, lacks_real_node

BLOCKS = 3
SYSTEMS: tuple[Start, ...] = (koordinator, slacktide)


def measure(rig: Rig) -> list[Row]:
    """Blocks in turns, then what each does once. ``--records FILE`` keeps what was measured for the picture."""
    if (lack := lacks_real_node() or lacks_koordinator() or lacks_kafka()) is not None:
        raise CannotRunError(str(lack))
    with running_node() as node:
        install(node, policy())
        usage = CGROUPS / "cpuacct/kubepods/cpuacct.usage"
        with OwnProc(rig.memory / "proc-koordinator", lambda: int(usage.read_text()) / 1e9) as proc:
            found = _run(rig, node, proc.folder)
    return list(rows(found))


def _run(rig: Rig, node: RealNode, proc: Path) -> Recorded:
    pods = Pods(node)
    pods.start_services()
    found = Recorded([], [], [])
    for at in range(1 if rig.brief else BLOCKS):
        for start in SYSTEMS if at % 2 == 0 else SYSTEMS[::-1]:
            found.blocks.append(block(rig, node, start, proc, pods))
            _keep(rig, found)
    for start in SYSTEMS:
        found.leaks.append(leak(rig, node, start, proc, pods))
        _keep(rig, found)
    for start in SYSTEMS[::-1]:
        found.silences.append(silence(rig, node, start, proc))
        _keep(rig, found)
    return found


def _keep(rig: Rig, found: Recorded) -> None:
    if rig.records is not None:
        rig.records.write_bytes(msgspec.json.format(msgspec.json.encode(found)))


def rows(found: Recorded) -> Iterator[Row]:
    """Each figure of both."""
    for name in NAMES:
        own = [one for one in found.blocks if one.system == name]
        if not own:
            continue
        yield from _costs(name, own)
        yield _steps(name, "first fall", own, lambda step: step.fell_s)
        yield _steps(name, "half of the step", own, lambda step: step.half_s)
        p50, p90 = (statistics.median(ages) for ages in zip(*(one.metric_age_s for one in own), strict=True))
        yield told(
            f"{name}: age of the NodeMetric", f"p50 {p50:.0f} s, p90 {p90:.0f} s", n=len(own), p50_s=p50, p90_s=p90
        )
        offered = [one.offered_s for one in own]
        said = ", ".join("not in time" if one is None else f"{one:.0f} s" for one in offered)
        yield told(f"{name}: load -> batch CPU on the Node", said, n=len(offered), offered_s=offered)
        p99, cores = ([getattr(one, field) for one in own] for field in ("p99_ms", "batch_cores"))
        said = f"p99 {statistics.median(p99):.1f} ms; batch work {statistics.median(cores):.2f} cores"
        yield told(f"{name}: service beside batch work", said, n=len(own), p99_ms=p99, batch_cores=cores)
    for silent in found.silences:
        said = "still offered" if silent.ended_s is None else f"{silent.ended_s:.0f} s"
        yield told(f"{silent.system}: silent node -> nothing offered", said, n=1, ended_s=silent.ended_s)
    for one in found.leaks:
        took = "none ended" if one.gone_s is None else f"{one.gone_s:.1f} s, {', '.join(one.ended)}"
        said = f"{took}; at most {one.above_mib} MiB above; {'; '.join(one.told)}"
        yield told(f"{one.system}: memory above the threshold -> pod gone", said, n=1, gone_s=one.gone_s)


def _costs(name: str, own: Sequence[Block]) -> Iterator[Row]:
    for where, parts in (("node", [one.on_node for one in own]), ("central", [one.central for one in own])):
        cpu = {of: statistics.median(each[of].cpu_pct for each in parts) for of in parts[0]}
        mib = {of: statistics.median(each[of].rss_mib for each in parts) for of in parts[0]}
        each = ", ".join(f"{of} {cpu[of]:.2f}% {mib[of]:.0f} MiB" for of in cpu)
        yield told(f"{name}: {where}", f"{sum(cpu.values()):.2f}% of a core, {sum(mib.values()):.0f} MiB: {each}",
                   n=len(own), cpu_pct=cpu, rss_mib=mib)  # fmt: skip


def _steps(name: str, what: str, own: Sequence[Block], of: Callable[..., float | None]) -> Row:
    every = [of(step) for one in own for step in one.steps]
    seen = [one for one in every if one is not None]
    return told(f"{name}: load -> limit, {what}", f"{_percentiles(seen)}; {len(every) - len(seen)} not in time",
                n=len(seen), seconds=_both(seen))  # fmt: skip


def _both(values: Sequence[float]) -> list[float | None]:
    return [percentile(values, at) for at in (50, 90)]


def _percentiles(values: Sequence[float]) -> str:
    p50, p90 = _both(values)
    return "-" if p50 is None or p90 is None else f"p50 {p50:.2f} s, p90 {p90:.2f} s"
