"""Where the pods of gangs start together, or why they wait. Topic slacktide.gang.plan.v1, key: the group."""

from typing import Annotated

from msgspec import Meta

from slacktide.schemas.bounds import Count, Name, TimeMs
from slacktide.schemas.message import Message

GROUP_CHARS_MAX = 65_536
"""Ids of all gangs that start together."""
GroupKey = Annotated[str, Meta(max_length=GROUP_CHARS_MAX)]


class GangPlace(Message, frozen=True, kw_only=True):
    """The node that is held for a pod."""

    pod_uid: Name
    name: Name
    node: Name


class GangNeed(Message, frozen=True, kw_only=True):
    """One gang of the group when this was decided."""

    gang: str
    """Namespace and name."""
    least: Count
    """How many of its pods start together."""
    exist: Count
    """Pods that have not ended."""
    bound: Count
    """Those of them that have a node."""
    needed: Count
    """How many of the others a plan must place; 0: they are judged one by one."""


class GangPlan(Message, frozen=True, kw_only=True):
    """The latest decision for gangs that start together. Of plans in one group the first is in force until it ends."""

    group: GroupKey
    """Ids of its gangs, sorted, joined by commas."""
    plan: str = ""
    """Id of the plan, which its amendments and its end repeat; "": there is none, the group waits."""
    replica: str = ""
    """The scheduler that made the plan."""
    decided_ms: TimeMs
    deadline_ms: TimeMs = 0
    """Pods that are not bound by then lose their places."""
    gangs: list[GangNeed] = []
    """The gangs of the group; empty: what they ask for is unknown."""
    waiting: list[Name] = []
    """Names of pods without a node, 100 at most."""
    places: list[GangPlace] = []
    """Empty: the plan has ended, or the group waits."""
    satisfied: bool = False
    """Whether the group started once. Later pods of a gang with once-satisfied are judged one by one."""
    reason: str = ""
    """Why it waits, or how the plan ended, such as ``gang_no_room`` or ``bound``."""
    why: str = ""
    """In words."""
