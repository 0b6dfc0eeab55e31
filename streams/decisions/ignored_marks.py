"""Which annotations and labels of a Node are ignored, whichever rule reads them."""

from __future__ import annotations

from collections.abc import Iterator

from slacktide.schemas.errors import BadMessageError, TextError
from slacktide.schemas.inventory import NodeFacts
from slacktide.schemas.kubernetes import ANNOTATION_RESERVATION, ignored_annotations
from slacktide.schemas.policy.idle import not_taken
from slacktide.schemas.text import shown
from slacktide.schemas.third_party import third_party
from slacktide.streams.decisions.cpu_list import cpu_list
from slacktide.streams.decisions.load.own_thresholds import own_thresholds
from slacktide.streams.decisions.suppress.node_cpus import ANNOTATION_SYSTEM_QOS, system_qos


def ignored_marks(facts: NodeFacts) -> list[str]:
    """Return each with its value and what is accepted."""
    return [*ignored_annotations(facts.annotations), *_of_rules(facts)]


def _of_rules(facts: NodeFacts) -> Iterator[str]:
    for name, why in not_taken(facts):
        if "ignored" in why:  # else it is taken, as the reference does
            yield f"{name}: {why}"
    for read in (own_thresholds, third_party):
        try:
            read(facts.annotations)
        except BadMessageError as exc:
            yield f"annotation {exc}: ignored"
    try:
        system = system_qos(facts.annotations)
    except TextError as exc:
        yield f"annotation {exc}: ignored"
    else:
        yield from _cpu_list(ANNOTATION_SYSTEM_QOS, "cpuset", system.cpuset)
    yield from _cpu_list(ANNOTATION_RESERVATION, "reservedCPUs", facts.reserved_cpus)


def _cpu_list(annotation: str, field: str, text: str) -> Iterator[str]:
    if cpu_list(text) is None:
        yield f"annotation {annotation}.{field}: {shown(text)}: ignored; accepted: a CPU list such as 0-3,6"
