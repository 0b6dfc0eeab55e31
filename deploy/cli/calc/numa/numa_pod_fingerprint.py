"""``slacktide calc numa_pod_fingerprint``."""

from __future__ import annotations

from slacktide.deploy.cli.calc.case import Calculated, Given
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.numa.pod_fingerprint import pod_fingerprint


class GivenName(Given, frozen=True, kw_only=True):
    """A pod's name."""

    namespace: str
    name: str


class Input(Given, frozen=True, kw_only=True):
    """Pods of a node."""

    pods: list[GivenName]


def calculate(given: Input) -> Calculated:
    """Compute the fingerprint of a set of pods."""
    text = pod_fingerprint((pod.namespace, pod.name) for pod in given.pods)
    because = Because(of="fingerprint", bound="hashed", terms={"pod_count": len(given.pods)})
    return Calculated(output={"fingerprint": text}, because=[because])
