"""Checks which of a host's workloads run, and which match nothing. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from slacktide.deploy.cli.doctor.facts import HostFacts
from slacktide.deploy.cli.doctor.finding import Finding, failed, good, warned
from slacktide.deploy.runtime.text import count
from slacktide.schemas.errors import ConfigError

NAMED_MAX = 5


def host_findings(facts: HostFacts | ConfigError) -> Iterator[Finding]:
    """Report all findings of the workloads of a machine without Kubernetes."""
    if isinstance(facts, ConfigError):
        for one in facts.findings:
            yield failed("host.valid", f"{one.field}: {one.value}", one.accepted, f"correct it in {one.file}")
        return
    yield good("host.valid", facts.file, "workloads by QoS class")
    yield good("host.pods", _named(facts), f"the contents of {facts.best_effort}, and matching workloads")
    for remark in facts.remarks:
        yield warned("host.match", f"{remark.what}: {remark.why}", "cgroups as in the file", remark.advice)


def _named(facts: HostFacts) -> str:
    more = len(facts.pods) - NAMED_MAX
    names = [*facts.pods[:NAMED_MAX], *([f"{more} more"] if more > 0 else [])]
    return f"{count(len(facts.pods), 'pod')}{': ' if names else ''}{', '.join(names)}"
