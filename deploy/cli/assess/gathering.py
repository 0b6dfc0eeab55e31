"""Converts responses to arrays of nodes by time steps, in whole millicores and bytes."""

import math
import re
from collections.abc import Iterable

import numpy as np

from slacktide.agents.prometheus import Series
from slacktide.deploy.cli.assess.prometheus import LABELS, POOL_LABELS, Answer, Asked, queries
from slacktide.deploy.runtime.text import count
from slacktide.schemas.errors import SlacktideError
from slacktide.streams.analysis.assess.usage import Amounts, Matrix, Usage

UNITS = {"cpu": 1000, "mem": 1}
ABOVE = 1.05
"""Use above capacity by more than this is a recording error; rates overshoot slightly."""


HONOR = (
    "The scrape job overwrites the label node and keeps the original as exported_node. Set honor_labels: true "
    "in the job, or honorLabels: true in the ServiceMonitor of kube-state-metrics. Only samples that are "
    "scraped after that can be assessed"
)


AMOUNT_MAX = 2.0**53
"""Values from here on, and infinity, are a recording error: no node has that much."""
NUMBER_CHARS_MAX = 64


class SeriesError(SlacktideError):
    """Required series are missing, or a value is invalid."""


class Gathering:
    """Collects responses."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._label = {name: query.label for name, query in queries(asked).items()}
        self._rows: dict[str, int] = {}
        self._values: dict[str, dict[int, Matrix]] = {name: {} for name in self._label}
        self._foreign: dict[str, set[str]] = {}
        self._labels: list[Series] = []

    def take(self, answer: Answer) -> None:
        """Add one response."""
        if answer.name == LABELS:
            self._labels = answer.series
            return
        if answer.name not in self._label:
            return
        defines = answer.name == "cpu_capacity"
        for series in answer.series:
            node = series.metric.get(self._label[answer.name], "")
            if defines and node:
                self._rows.setdefault(node, len(self._rows))
            row = self._rows.get(node)
            if row is None:
                self._foreign.setdefault(answer.name, set()).add(node)
                continue
            values = self._values[answer.name].get(row)
            if values is None:
                values = self._values[answer.name][row] = np.full(self._asked.steps, np.nan)
            at = np.array([moment for moment, _ in series.values])
            steps = np.rint((at - self._asked.start_s) / self._asked.step_s)
            inside = (steps >= 0) & (steps < self._asked.steps)
            steps = np.where(inside, steps, 0).astype(np.int64)
            values[steps[inside]] = np.array([_number(text, answer.name, series) for _, text in series.values])[inside]

    def usage(self) -> Usage:
        """Return all collected data. Raises SeriesError if there are no nodes, or no series of their use."""
        if not self._rows and self._foreign.get("cpu_capacity"):
            raise SeriesError(f"the series kube_node_status_capacity have no label node. {HONOR}")
        if not self._rows:
            raise SeriesError(
                "the span has no series kube_node_status_capacity, so no node is known. Check that this "
                "Prometheus scrapes kube-state-metrics, and check --since, --until and --matcher"
            )
        for name in ("cpu_pods_used", "mem_pods_used"):
            if not self._values[name]:
                raise SeriesError(self._missing(name))
        if len(strangers := self._foreign.get("cpu_pods_used", set()) - {""}) > len(self._rows):
            raise SeriesError(
                f"kube-state-metrics has {count(len(self._rows), 'node')}, such as {min(self._rows)!r}, but not "
                f"{count(len(strangers), 'other node')} that cAdvisor has, such as {min(strangers)!r}. {HONOR}"
            )
        cpu, cpu_wrong = self._amounts("cpu")
        mem, mem_wrong = self._amounts("mem")
        return Usage(
            nodes=list(self._rows),
            pools=_pools(self._labels, self._asked.pool_label),
            start_s=self._asked.start_s,
            step_s=self._asked.step_s,
            window_s=self._asked.window_s,
            cpu=cpu,
            mem=mem,
            implausible=cpu_wrong + mem_wrong,
        )

    def _missing(self, name: str) -> str:
        what = "container_cpu_usage_seconds_total" if name.startswith("cpu") else "container_memory_working_set_bytes"
        others = self._foreign.get(name, set())
        label = self._asked.node_label
        if not others:
            return (
                f"the span has no series {what} of pods with the labels pod and container. Check that this "
                "Prometheus scrapes the kubelet's /metrics/cadvisor"
            )
        if others == {""}:
            return (
                f"the series {what} have no label {label}. Give the label that contains the node's name with "
                "--node-label, such as instance or kubernetes_io_hostname"
            )
        known, other = min(self._rows), min(others - {""})
        return (
            f"the label {label} of {what} contains {other!r}, but kube-state-metrics knows nodes such as "
            f"{known!r}. Give another label with --node-label"
        )

    def _amounts(self, short: str) -> tuple[Amounts, int]:
        """Return one resource, and the number of implausible node steps."""

        def matrix(name: str) -> Matrix:
            rows = self._values.get(f"{short}_{name}", {})
            whole = np.full((len(self._rows), self._asked.steps), np.nan)
            for row, values in rows.items():
                whole[row] = np.trunc(values * UNITS[short])
            rows.clear()
            if name != "pods_used":
                whole[np.abs(whole) >= AMOUNT_MAX] = np.nan
            return whole

        capacity, pods_used, requested = matrix("capacity"), matrix("pods_used"), matrix("requested")
        capacity[capacity <= 0] = np.nan
        # The rate handles counter resets. Values above capacity and NaN are dropped.
        wrong = ~np.isfinite(pods_used) & ~np.isnan(pods_used) | (pods_used > capacity * ABOVE) | (pods_used < 0)
        wrong |= pods_used >= AMOUNT_MAX
        pods_used[wrong] = np.nan
        if not np.isnan(requested).all():  # a node without a series has pods without requests
            requested = np.where(np.isnan(requested) & ~np.isnan(capacity), 0, requested)
        amounts = Amounts(
            capacity=capacity,
            reserved=np.maximum(capacity - matrix("allocatable"), 0),
            node_used=matrix("node_used"),
            pods_used=pods_used,
            low_used=np.nan_to_num(matrix("low_used"), nan=0.0),
            exclusive_idle=np.nan_to_num(matrix("exclusive_idle"), nan=0.0),
            requested=requested,
            max_used_request=matrix("max_used_request"),
        )
        return amounts, int(wrong.sum())


def _number(text: str, name: str, series: Series) -> float:
    """Parse a value. Raises SeriesError: Prometheus writes decimal numbers, NaN and Inf."""
    try:
        value = float(text if len(text) <= NUMBER_CHARS_MAX else "")
    except ValueError as exc:
        labels = ", ".join(f"{label}={value}" for label, value in sorted(series.metric.items()))
        raise SeriesError(
            f"the query {name}: the series with {labels or 'no labels'} has the value {text[:NUMBER_CHARS_MAX]!r}; "
            "accepted: a number. Check that --prometheus is the address of a Prometheus"
        ) from exc
    return math.copysign(AMOUNT_MAX, value) if abs(value) > AMOUNT_MAX else value


def _pools(series: Iterable[Series], label: str) -> dict[str, str]:
    """Return each node's pool, by the given label or the first usual one."""
    own = re.sub(r"[^a-zA-Z0-9_]", "_", label)
    names = (own if own.startswith("label_") else f"label_{own}",) if own else POOL_LABELS
    found = {}
    for one in series:
        if pool := next((one.metric[name] for name in names if one.metric.get(name)), None):
            found[one.metric.get("node", "")] = pool
    return found
