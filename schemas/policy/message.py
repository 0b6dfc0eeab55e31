"""The policy as a record. Topic slacktide.policy.v1, one partition, key: policy."""

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Generic, Literal, TypeVar

import msgspec

from slacktide.schemas.bounds import Revision, TimeMs, WriterEpoch
from slacktide.schemas.codec import decode
from slacktide.schemas.errors import BadMessageError, Finding
from slacktide.schemas.inventory import supersedes
from slacktide.schemas.message import Message
from slacktide.schemas.policy.resource_qos import ResourceQos
from slacktide.schemas.policy.selector import Selector
from slacktide.schemas.policy.strategies import (
    AdmissionPolicy,
    AgentPolicy,
    Colocation,
    CpuBurst,
    Descheduling,
    EvictionBudget,
    Placement,
    ResourceThreshold,
)
from slacktide.schemas.proof import Mode

KEY = "policy"
FINDINGS_MAX, FINDING_CHARS_MAX = 10, 300
NodeSource = Literal["inventory", "open"]
"""Which nodes exist: those with an inventory record; or also those that only send samples, up to a number."""
S = TypeVar("S", Colocation, ResourceThreshold, ResourceQos, CpuBurst)


class NodeStrategy(Message, Generic[S], frozen=True, kw_only=True):
    """A strategy for some nodes, whole: the cluster's with its own fields in place."""

    name: str
    selector: Selector
    said: list[str] = []
    """Its own fields, such as ``cpu_suppress_min_pct`` or ``be.mem.priority``."""
    strategy: S


class RefusedFile(Message, frozen=True, kw_only=True):
    """The operator's newest file, which is invalid: an earlier policy stays in force."""

    since_ms: TimeMs = 0
    """When its writer published this first. Set by the publisher."""
    findings: list[str]
    """Field, value and accepted range of each error."""


class Policy(Message, frozen=True, kw_only=True):
    """What is in force in the whole cluster, and on nodes that a selector picks. A null value changes nothing."""

    version: str
    """Content hash of the strategies: equal or not, there is no older."""
    colocation: Colocation = Colocation()
    resource_threshold: ResourceThreshold = ResourceThreshold()
    resource_qos: ResourceQos = ResourceQos()
    cpu_burst: CpuBurst = CpuBurst()
    node_colocation: list[NodeStrategy[Colocation]] = []
    """The first match of a node is used, as in the other three lists."""
    node_resource_threshold: list[NodeStrategy[ResourceThreshold]] = []
    node_resource_qos: list[NodeStrategy[ResourceQos]] = []
    node_cpu_burst: list[NodeStrategy[CpuBurst]] = []
    eviction_budget: EvictionBudget = EvictionBudget()
    descheduling: Descheduling = Descheduling()
    placement: Placement = Placement()
    agent: AgentPolicy = AgentPolicy()
    admission: AdmissionPolicy = AdmissionPolicy()
    said: list[str] = []
    """Fields that the cluster's strategies set themselves, such as ``colocation.enable``; others have their default."""
    node_proof: Mode = "off"
    """Whether a sample, an outcome or a minute of a service counts only with the proof of its node. Set by the
    publisher, and not part of the version: a node decides the same with it and without."""
    node_source: NodeSource = "open"
    """Set by the publisher of policy and inventory; not part of the version."""
    installation: Revision = ""
    """Id of the policy topic's life, drawn by its first writer and adopted by each later one. Epochs compare within it;
    "": a writer of an older release."""
    writer_epoch: WriterEpoch = 0
    published_ms: TimeMs = 0
    refused: RefusedFile | None = None
    """The newest file, if it is invalid; not part of the version."""


def refused_file(findings: Sequence[Finding]) -> RefusedFile:
    """Of an invalid file, what the policy that stays in force holds of it."""
    return RefusedFile(findings=[finding.described[:FINDING_CHARS_MAX] for finding in findings[:FINDINGS_MAX]])


def refusal(refused: RefusedFile, version: str) -> str:
    """Return since when an operator's file is not in force, and why. ``version``: what is; "": unknown."""
    since = datetime.fromtimestamp(refused.since_ms // 1_000, UTC).strftime(" since %Y-%m-%dT%H:%M:%SZ")
    kept = f"version {version} is in force" if version else "the last valid version stays in force"
    return f"policy refused{since if refused.since_ms else ''}: {'; '.join(refused.findings)}; {kept}"


def policy_of(colocation: Colocation, resource_threshold: ResourceThreshold) -> Policy:
    """A policy of these two with its version. The publisher adds its epoch and time."""
    return versioned(Policy(version="", colocation=colocation, resource_threshold=resource_threshold))


def versioned(policy: Policy) -> Policy:
    """The policy with the version that its strategies have."""
    content = msgspec.json.encode((policy.colocation, policy.resource_threshold))
    rest = [getattr(policy, name) for name in _REST]
    if rest != _NO_REST:  # else as before there was a rest: a policy that sets no more keeps its version
        content += msgspec.json.encode(rest)
    # The same of each that came since.
    for later in (policy.eviction_budget, policy.descheduling, policy.placement, policy.agent, policy.admission):
        if later != type(later)():
            content += msgspec.json.encode(later)
    return msgspec.structs.replace(policy, version=hashlib.sha256(content).hexdigest()[:12])


_REST = ("resource_qos", "cpu_burst", "node_colocation", "node_resource_threshold", "node_resource_qos",
         "node_cpu_burst")  # fmt: skip
_NO_REST = [getattr(Policy(version=""), name) for name in _REST]

DEFAULT = policy_of(Colocation(), ResourceThreshold())
"""The reference's: everything off."""


def read(key: bytes | None, value: bytes | None) -> Policy:
    """The policy in a record of its topic. Raises BadMessageError if it is none."""
    if key != KEY.encode():
        raise BadMessageError("Policy", f"the record's key is {key!r}, not {KEY!r}")
    return decode(value, Policy)


class InForce:
    """The last good policy of the highest writer epoch.

    An epoch counts within one installation, which is one life of the policy topic. Each writer adopts the id that it
    finds in the topic. So another id means another topic, whose epochs may begin anew.

    Args:
        policy: what is in force before the topic is read, such as what a process stored on disk.
    """

    def __init__(self, policy: Policy = DEFAULT) -> None:
        self.policy = policy
        self.refused = ""
        """Why the newest record of the topic is not in force, and what to do; "": it is."""
        self.by_epoch = False
        """Whether this reader refuses it for its epoch, though others may follow it."""

    def take(self, key: bytes | None, value: bytes | None, place: str) -> bool:
        """Read one record of the topic.

        Args:
            key: the record's.
            value: the record's.
            place: topic, partition and offset, for ``refused``.

        Returns:
            Whether its policy is in force now.

        Raises:
            BadMessageError: it is no policy.
        """
        held = self.policy
        if value is None:
            if key == KEY.encode():
                self._refuse(f"{place}: the policy is deleted (a null value); {held.version or 'none'} stays in force; "
                             "publish a policy again")  # fmt: skip
            return False
        try:
            policy = read(key, value)
        except BadMessageError as exc:
            if key == KEY.encode():  # a record of another key replaces no policy
                self._refuse(f"{place}: {exc}; {held.version} stays in force; publish a valid policy")
            raise
        if not supersedes(policy, held):
            self._refuse(
                f"{place}: policy {policy.version} has writer_epoch {policy.writer_epoch}, accepted: at least "
                f"{held.writer_epoch} in installation {held.installation or 'without id'}; {held.version} stays in "
                "force; stop the writer with the lower epoch, or upgrade it if it writes no installation",
                by_epoch=True,
            )
            return False
        self.policy, self.refused, self.by_epoch = policy, "", False
        return True

    def _refuse(self, why: str, *, by_epoch: bool = False) -> None:
        self.refused, self.by_epoch = why, by_epoch
