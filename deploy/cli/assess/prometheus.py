"""Queries Prometheus in chunks over HTTP, read-only, or reads the answers from the file of an earlier run.

The queries sum by node, so that responses do not grow with pods.
"""

import gzip
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, BinaryIO, NamedTuple, cast

import msgspec

from slacktide.agents.prometheus import Limits, Prometheus, Series, TooMuchError
from slacktide.deploy.runtime.line_file import ExportFileError, Lines
from slacktide.schemas.codec import MALFORMED
from slacktide.schemas.errors import SlacktideError

BYTES_MAX = 512 * 1024 * 1024
LIMITS = Limits(timeout_s=120.0, bytes_max=BYTES_MAX, smaller="a longer --step reads fewer samples")
STEPS_MAX = 50_000
WINDOW_S = 300
"""Rates are averaged over a NodeMetric's default window."""
LOW = 'priority_class=~"koord-(batch|free).*"'
POOL_LABELS = (
    "label_node_pool",
    "label_cloud_google_com_gke_nodepool",
    "label_eks_amazonaws_com_nodegroup",
    "label_kubernetes_azure_com_agentpool",
    "label_karpenter_sh_nodepool",
    "label_node_koordinator_sh_pool",
)
"""Labels of common node pools, as kube-state-metrics writes them."""
CHUNK_STEPS = 72
"""Steps per query: six hours at five minutes."""
FORMAT = "slacktide assess 1"
LABELS = "labels"


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The span and the selectors of a recording."""

    start_s: Annotated[int, msgspec.Meta(ge=0, le=2**53)]
    step_s: Annotated[int, msgspec.Meta(ge=1)]
    steps: Annotated[int, msgspec.Meta(ge=2, le=STEPS_MAX)]
    node_label: str
    """The label of cAdvisor's series with the node name."""
    pool_label: str = ""
    """The label of kube_node_labels; "": the usual labels."""
    matcher: str = ""
    """A matcher for every series, such as ``cluster="prod"``."""
    max_used_request: bool = False
    window_s: int = WINDOW_S
    """Minimum averaging window. A window longer than a counter's history understates its rate."""


class Query(NamedTuple):
    """A query, and its label with the node name."""

    label: str
    text: str


def queries(asked: Asked) -> dict[str, Query]:
    """Return the queries by name. Capacity is first, since it determines the nodes."""
    more = f",{asked.matcher}" if asked.matcher else ""
    window = f"[{max(asked.step_s, asked.window_s)}s]"
    by, label = f"by ({asked.node_label})", asked.node_label
    low = f"max by (namespace, pod) (kube_pod_info{{{LOW}{more}}})"
    alive = f'max by (namespace, pod) (kube_pod_status_phase{{phase=~"Pending|Running"{more}}} == 1)'
    found: dict[str, Query] = {}
    for short, resource, counted in (
        ("cpu", "cpu", "rate(container_cpu_usage_seconds_total{{{0}}}{1})"),
        ("mem", "memory", "container_memory_working_set_bytes{{{0}}}"),
    ):
        of = f'resource="{resource}"{more}'
        # Each job that scrapes a kubelet shows every cgroup, too.
        of_root = counted.format(f'id="/"{more}', window)
        root = f"max {by} ({of_root})"
        of_pods = counted.format(f'pod!="",container!="",container!="POD"{more}', window)
        pods = f"max by ({label}, namespace, pod, container, id) ({of_pods})"
        # Each replica of kube-state-metrics shows every container.
        once = "max by (namespace, pod, container, node)"
        request = (
            f'sum by (namespace, pod, node) ({once} (kube_pod_container_resource_requests{{node!="",{of}}}))'
            f" and on (namespace, pod) {alive} unless on (namespace, pod) {low}"
        )
        found |= {
            f"{short}_capacity": Query(label="node", text=f"max by (node) (kube_node_status_capacity{{{of}}})"),
            f"{short}_allocatable": Query(label="node", text=f"max by (node) (kube_node_status_allocatable{{{of}}})"),
            f"{short}_node_used": Query(label=label, text=root),
            f"{short}_pods_used": Query(label=label, text=f"sum {by} ({pods})"),
            f"{short}_low_used": Query(label=label, text=f"sum {by} ({pods} and on (namespace, pod) {low})"),
            f"{short}_requested": Query(label="node", text=f"sum by (node) ({request})"),
        }
        if asked.max_used_request:
            renamed = f'label_replace({pods}, "node", "$1", "{label}", "(.+)")'
            used = f"sum by (namespace, pod, node) ({renamed}) unless on (namespace, pod) {low}"
            larger = f"sum by (node) ((({used}) > ({request})) or ({request}) or ({used}))"
            found[f"{short}_max_used_request"] = Query(label="node", text=larger)
        if short == "cpu":
            found["cpu_exclusive_idle"] = Query(label="node", text=_exclusive_idle(request, pods, label, more))
    return found


def _exclusive_idle(request: str, pods: str, label: str, more: str) -> str:
    """Query the idle part of exclusive CPUs by node. The kubelet counts them without their owners.

    Exclusive CPUs belong to Guaranteed pods with a container that requests whole CPUs.
    """
    counted = f"kubelet_cpu_manager_exclusive_cpu_allocation_count{{{more.removeprefix(',')}}} > 0"
    nodes = f'label_replace({counted}, "node", "$1", "{label}", "(.+)")'
    asked = f'kube_pod_container_resource_requests{{node!="",resource="cpu"{more}}}'
    whole = f"max by (namespace, pod) ({asked} >= 1 and {asked} % 1 == 0)"
    guaranteed = f'max by (namespace, pod) (kube_pod_status_qos_class{{qos_class="Guaranteed"{more}}} == 1)'
    owners = f"({request}) and on (namespace, pod) {whole} and on (namespace, pod) {guaranteed} and on (node) {nodes}"
    used = f"sum by (namespace, pod) ({pods})"
    return f"sum by (node) (clamp_min(({owners}) - on (namespace, pod) group_left {used}, 0))"


class RecordingError(SlacktideError):
    """The file is not a recording, or is truncated."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The series of a query, or of a part of its span."""

    name: str
    part: float
    """Progress after this response, 0 to 1."""
    series: list[Series]


class _Header(msgspec.Struct, frozen=True, kw_only=True):
    format: str
    asked: Asked


def answers(prometheus: Prometheus, asked: Asked) -> Iterator[Answer]:
    """Run all queries in chunks of bounded size."""
    wanted = queries(asked)
    end_s = asked.start_s + (asked.steps - 1) * asked.step_s
    chunks = range(0, asked.steps, CHUNK_STEPS)
    total, done = len(wanted) * len(chunks) + 1, 1
    labels = prometheus.range(f"kube_node_labels{{{asked.matcher}}}", end_s, end_s, asked.step_s)
    yield Answer(name=LABELS, part=done / total, series=labels)
    for name, query in wanted.items():
        for first in chunks:
            last = min(first + CHUNK_STEPS, asked.steps) - 1
            done += 1
            for series in _split(prometheus, query.text, asked, first, last):
                yield Answer(name=name, part=done / total, series=series)


def _split(prometheus: Prometheus, text: str, asked: Asked, first: int, last: int) -> Iterator[list[Series]]:
    """Query a span; halve it if the server's limit is exceeded."""
    start_s, end_s = (asked.start_s + at * asked.step_s for at in (first, last))
    try:
        series = prometheus.range(text, start_s, end_s, asked.step_s)
    except TooMuchError:
        if first == last:
            raise
        middle = (first + last) // 2
        yield from _split(prometheus, text, asked, first, middle)
        yield from _split(prometheus, text, asked, middle + 1, last)
    else:
        yield series


def recorded(asked: Asked, coming: Iterator[Answer], file: Path) -> Iterator[Answer]:
    """Write responses to a file as they pass: a header, one line per response, an end."""
    with gzip.open(file, "wb", compresslevel=3) as out:
        out.write(msgspec.json.encode(_Header(format=FORMAT, asked=asked)) + b"\n")
        for answer in coming:
            out.write(msgspec.json.encode(answer) + b"\n")
            yield answer
        out.write(b"end\n")


def read(file: Path) -> tuple[Asked, Iterator[Answer]]:
    """Read the recording of an earlier run.

    Raises RecordingError: the file is not from ``--record``, or is truncated.
    """
    stack = ExitStack()
    try:
        packed = gzip.open(file, "rb")  # noqa: SIM115 - _lines closes it
        lines = stack.enter_context(Lines(cast("BinaryIO", packed), str(file), BYTES_MAX))
        header = msgspec.json.decode(lines.readline(), type=_Header)
    except (OSError, ExportFileError, *MALFORMED) as exc:
        stack.close()
        why = exc.strerror if isinstance(exc, OSError) and exc.strerror else exc
        raise RecordingError(
            f"{file} is not a recording: {why}; accepted: a file that slacktide assess --record wrote"
        ) from exc
    if header.format != FORMAT:
        stack.close()
        raise RecordingError(f"{file} has the format {header.format!r}; accepted: {FORMAT!r}. Record it again")
    return header.asked, _lines(file, lines, stack)


def _lines(file: Path, lines: Lines, stack: ExitStack) -> Iterator[Answer]:
    decoder = msgspec.json.Decoder(Answer)
    with stack:
        try:
            for line in lines:
                if line == b"end\n":
                    return
                yield decoder.decode(line)
        except (ExportFileError, *MALFORMED) as exc:
            raise RecordingError(f"{file} is damaged: {exc}. Record it again") from exc
    raise RecordingError(f"{file} ends early: its recording was interrupted. Record it again")
