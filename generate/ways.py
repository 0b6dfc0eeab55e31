"""The ways of a sample, of an outcome and of an admission through the modules, counted over the calls in the source.

A way has legs. A leg follows all calls that lead from its entry to a door: the kernel's files, Kafka, the API server, a
codec, or the rules. Functions stand in the order in which a reader of the calls meets them, each once. A stay is a run
of them in one module, and a return a stay in a module that was left.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from generate.call_graph import Source


class Leg(NamedTuple):
    """A part of a way, within one process."""

    what: str
    entry: str
    """A function."""


class Way(NamedTuple):
    """What goes from door to door."""

    title: str
    legs: tuple[Leg, ...]
    doors: tuple[str, ...]
    """Besides ``DOORS``."""
    beside: tuple[str, ...]
    """Not followed: what happens rarely, or has a way of its own."""


DOORS = (
    "agents.kubernetes",
    "agents.node.cgroup.files",
    "schemas.codec",
    "schemas.headers",
    "schemas.kubernetes_pod",
    "schemas.sample_columns_codec",
    "streams.kafka",
)
"""Functions, classes, modules and packages. Each counts as one module."""

WAYS = (
    Way(
        "A sample, and its command",
        (
            Leg("agent reads", "agents.node.loop.AgentLoop._take"),
            Leg("agent sends", "agents.node.link.Link._send_newest"),
            Leg("worker answers", "streams.topology.samples_app.decide"),
            Leg("agent applies", "agents.node.loop.AgentLoop.commands"),
        ),
        (
            "agents.node.outbox.Newest.put",
            "schemas.command.NodeCommand",
            "schemas.sample.NodeSample",
            "streams.decisions.node_decision",
        ),
        (
            "agents.node.agent.NodeAgent._guard",
            "agents.node.agent.NodeAgent.overdue",
            "agents.node.evict",
            "agents.node.knobs",
            "agents.node.link.Link._keep",
            "agents.node.link.Link._refuse",
            "agents.node.loop.AgentLoop._arm",
            "agents.node.spool",
            "agents.node.tuner",
            "streams.engine.answering.Answering._answer_one_by_one",
            "streams.engine.answering.Answering._suspects",
            "streams.engine.answering.Answering._take_over",
            "streams.engine.quarantine",
            "streams.engine.writing.Figures",
            "streams.records.Writer.dead",
            "streams.worker.one_by_one.Single._refused",
            "streams.worker.worker.Worker.refused",
        ),
    ),
    Way(
        "An outcome, and what it costs and tells",
        (
            Leg("agent acts", "agents.node.agent.NodeAgent._settle"),
            Leg("agent sends", "agents.node.link.Link._send_outcomes"),
            Leg("governor grants", "streams.engine.governing._Candidate._govern"),
            Leg("explain shows", "deploy.cli.explain.command.node"),
        ),
        ("agents.node.spool", "schemas.credit", "schemas.outcome", "streams.analysis.explain.carried_out"),
        (
            "agents.node.agent.NodeAgent._hold_nothing",
            "agents.node.cgroup",
            "agents.node.evict",
            "agents.node.link.Link._refuse",
            "agents.node.tuner",
            "streams.records.Writer.dead",
        ),
    ),
    Way(
        "An admission",
        (Leg("webhook answers", "agents.cluster.webhook.answers.Answers.mutate"),),
        (
            "agents.cluster.webhook.review.asked",
            "agents.cluster.webhook.review.allowed",
            "agents.cluster.webhook.review.refused",
            "streams.decisions",
        ),
        ("agents.publisher",),
    ),
)


class Walked(NamedTuple):
    """A way as it is in the source."""

    way: Way
    legs: tuple[tuple[str, ...], ...]
    """The modules of each leg's stays, in order."""
    forms: tuple[str, ...]
    """Structs that functions on the way build or return."""

    @property
    def stays(self) -> list[str]:
        """The modules of all stays."""
        return [module for leg in self.legs for module in leg]

    @property
    def modules(self) -> list[str]:
        """Each module once, in the order of its first stay."""
        return list(dict.fromkeys(self.stays))

    @property
    def counts(self) -> dict[str, int]:
        """What the page states."""
        stays, modules = len(self.stays), len(self.modules)
        return {"modules": modules, "stays": stays, "returns": stays - modules, "forms": len(self.forms)}


def walked(source: Source, way: Way) -> Walked:
    """Follow a way through the source.

    Raises:
        ValueError: it names something that is not there.
    """
    names = {one.name: one.module for one in source.functions.values()}
    names |= {one.name: one.module for one in source.classes.values()}
    door_of = {name: door for door in (*DOORS, *way.doors) for name in _within(names, door)}
    beside = {name for one in way.beside for name in _within(names, one)} - {leg.entry for leg in way.legs}
    refers = {name: [to for to in one.refers if to in names and to not in beside] for name, one in
              source.functions.items() if name not in beside}  # fmt: skip
    lead = _leading_to(door_of.keys(), refers)
    met: dict[str, None] = {}

    def meet(name: str) -> Iterator[str]:
        if name in met or name not in lead:
            return
        met[name] = None
        yield door_of.get(name, names[name])
        if name not in door_of:
            for to in refers.get(name, ()):
                yield from meet(to)

    legs = []
    for leg in way.legs:
        if not _within(names, leg.entry) or leg.entry not in lead:
            raise ValueError(f"{leg.entry}: no call leads from it to a door")
        legs.append(tuple(module for module, _ in groupby(meet(leg.entry))))
    made = [(name,) if name in source.classes else source.returned(source.functions[name]) for name in met]
    forms = dict.fromkeys(name for names in made for name in sorted(names) if source.is_struct(name))
    return Walked(way, tuple(legs), tuple(forms))


def _within(names: dict[str, str], one: str) -> list[str]:
    """Return the functions and classes of a package, module or class, or the function itself."""
    found = [name for name in names if name == one or name.startswith(f"{one}.")]
    if not found:
        raise ValueError(f"{one}: no function, class, module or package has this name; correct it in generate/ways.py")
    return found


def _leading_to(doors: Iterable[str], refers: dict[str, list[str]]) -> set[str]:
    callers: dict[str, list[str]] = {}
    for name, referred in refers.items():
        for to in referred:
            callers.setdefault(to, []).append(name)
    found, todo = set(doors), list(doors)
    while todo:
        new = [name for name in callers.get(todo.pop(), ()) if name not in found]
        found.update(new)
        todo += new
    return found
