"""Formats the result of a comparison as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import msgspec

from slacktide.deploy.runtime.text import count, table
from slacktide.streams.comparison import Comparison, Sold, Tally, difference

NODES_SHOWN = 20
PODS_SHOWN = 10
GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """All differences of one node, or of all together."""

    node: str
    """ "" : all."""
    agreement: float | None
    samples: int
    same: int
    undecided: int
    limits: dict[str, dict[str, int | None]]
    evicts_only_real: dict[str, int]
    evicts_only_shadow: dict[str, int]
    settings: dict[str, int]
    batch_cpu_milli: tuple[int, int]
    """The amounts by the policy in force and by the shadow."""
    batch_mem_bytes: tuple[int, int]


def found_of(node: str, tally: Tally, sold: list[Sold]) -> Found:
    """Return the figures of one or several nodes."""
    both = [one for one in sold if one.real is not None and one.shadow is not None]
    return Found(
        node=node,
        agreement=tally.agreement,
        samples=tally.samples,
        same=tally.same,
        undecided=tally.skipped,
        limits={
            rule: {
                "tighter": limit.tighter,
                "looser": limit.looser,
                "mean_milli": limit.mean_milli,
                "greatest_milli": limit.greatest_milli if limit.measured else None,
            }
            for rule, limit in sorted(tally.limits.items())
        },
        evicts_only_real=dict(tally.evicts_real.most_common()),
        evicts_only_shadow=dict(tally.evicts_shadow.most_common()),
        settings=dict(sorted(tally.settings.items())),
        batch_cpu_milli=difference((one.real.batch_cpu_milli, one.shadow.batch_cpu_milli) for one in both),  # type: ignore[union-attr]
        batch_mem_bytes=difference((one.real.batch_mem_bytes, one.shadow.batch_mem_bytes) for one in both),  # type: ignore[union-attr]
    )


def all_found(compared: Comparison) -> tuple[Found, list[Found]]:
    """Return the total, and each node, worst first."""
    each = [found_of(node, tally, [compared.sold.get(node, Sold())]) for node, tally in compared.worst_first()]
    return found_of("", compared.all(), [compared.sold.get(node, Sold()) for node in compared.nodes]), each


def as_json(compared: Comparison) -> str:
    """Format one JSON object."""
    whole, each = all_found(compared)
    result = {
        "policies": [
            {"real": real, "shadow": shadow, "samples": samples}
            for (real, shadow), samples in compared.versions.most_common()
        ],
        "without_shadow": compared.alone,
        "all": asdict(whole),
        "nodes": [asdict(one) for one in each],
    }
    return msgspec.json.format(msgspec.json.encode(result), indent=2).decode()


def shown(compared: Comparison, waited_s: float) -> str:
    """Format the comparison for a terminal."""
    whole, each = all_found(compared)
    return "\n\n".join(part for part in ["\n".join(_head(compared, whole, waited_s)), *_parts(whole, each)] if part)


def _head(compared: Comparison, whole: Found, waited_s: float) -> Iterator[str]:
    for (real, shadow), samples in compared.versions.most_common():
        yield f"policy {real}, shadow policy {shadow}: {count(samples, 'sample')}"
    yield (
        f"{_percent(whole.agreement)} of {count(whole.samples, 'answer')} are equal, for "
        f"{count(len(compared.nodes), 'node')}, after {waited_s:.0f} s"
    )
    if whole.undecided:
        yield f"{count(whole.undecided, 'sample')} not compared, because one of the policies could not decide"
    if compared.alone:
        yield (
            f"{count(compared.alone, 'sample')} without an answer of the shadow: a worker runs without --shadow, or "
            "lags"
        )
    cpu, mem = whole.batch_cpu_milli, whole.batch_mem_bytes
    yield (
        f"batch-cpu {_cores(cpu[0])} cores, shadow {_cores(cpu[1])} ({_signed((cpu[1] - cpu[0]) / 1000)}); "
        f"batch-memory {_gib(mem[0])} GiB, shadow {_gib(mem[1])} ({_signed((mem[1] - mem[0]) / GIB)})"
    )


def _parts(whole: Found, each: list[Found]) -> Iterator[str]:
    if whole.limits:
        rows = [(rule, limit["tighter"], limit["looser"], _milli(limit["mean_milli"]), _milli(limit["greatest_milli"]))
                for rule, limit in whole.limits.items()]  # fmt: skip
        yield table(["LIMIT BY", "TIGHTER", "LOOSER", "MEAN", "GREATEST"], rows)
    pods = [(pod, "real", times) for pod, times in whole.evicts_only_real.items()]
    pods += [(pod, "shadow", times) for pod, times in whole.evicts_only_shadow.items()]
    if pods:
        yield _cut(table(["POD", "EVICTED ONLY BY", "SAMPLES"], pods[:PODS_SHOWN]), len(pods) - PODS_SHOWN, "pod")
    if whole.settings:
        yield table(["OTHER SETTINGS BY", "SAMPLES"], list(whole.settings.items()))
    if each:
        head = [
            "NODE",
            "SAME",
            "SAMPLES",
            "TIGHTER",
            "LOOSER",
            "GREATEST",
            "EVICTS ONLY REAL/SHADOW",
            "BATCH-CPU",
            "BATCH-MEMORY",
        ]
        yield _cut(table(head, [_row(one) for one in each[:NODES_SHOWN]]), len(each) - NODES_SHOWN, "node")


def _row(one: Found) -> tuple[object, ...]:
    limits = list(one.limits.values())
    changes = [limit["greatest_milli"] for limit in limits if limit["greatest_milli"] is not None]
    cpu, mem = one.batch_cpu_milli, one.batch_mem_bytes
    return (
        one.node,
        _percent(one.agreement),
        one.samples,
        sum(limit["tighter"] or 0 for limit in limits),
        sum(limit["looser"] or 0 for limit in limits),
        _milli(max(changes, key=abs, default=None)),
        f"{len(one.evicts_only_real)} / {len(one.evicts_only_shadow)}",
        f"{_cores(cpu[0])} -> {_cores(cpu[1])}",
        f"{_gib(mem[0])} -> {_gib(mem[1])} GiB",
    )


def _cut(text: str, more: int, noun: str) -> str:
    return f"{text}\n... and {count(more, f'more {noun}')}" if more > 0 else text


def _percent(part: float | None) -> str:
    """Format a share. It is never 100% if an answer differs."""
    if part is None:
        return "-"
    return "100%" if part == 1 else f"{min(part * 100, 99.9):.1f}%"


def _milli(change: int | None) -> str:
    return "-" if change is None else f"{change:+}m"


def _cores(milli: int) -> str:
    return f"{milli / 1000:.2f}"


def _gib(amount_bytes: int) -> str:
    return f"{amount_bytes / GIB:.2f}"


def _signed(amount: float) -> str:
    return f"{amount:+.2f}"
