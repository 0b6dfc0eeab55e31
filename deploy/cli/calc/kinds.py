"""Cases of the kinds that a queue starts and stops beside Jobs."""

from collections.abc import Sequence
from typing import Any

import msgspec

from slacktide.deploy.cli.calc.case import Calculated
from slacktide.schemas.errors import CaseError
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.queue.job import Admission, Conflict, Flavor, Toleration
from slacktide.streams.decisions.queue.kinds.manifest import Json, Path, changed, value_at
from slacktide.streams.decisions.queue.kinds.placing import GATE
from slacktide.streams.decisions.queue.kinds.queued import ObjectWrite, Queued
from slacktide.streams.decisions.queue.kinds.table import Table
from slacktide.streams.decisions.queue.workload_objects import pod_set_of

SHOWN = {"suspend", "nodeSelector", "tolerations", "schedulingGates", "runtimePatches", "submitterPodTemplate"}
AMOUNTS = {"cpu": "cpu_milli", "memory": "memory_bytes"}
TABLE = Table()


class _Admitted(msgspec.Struct, frozen=True):
    node_selector: dict[str, str] = {}
    tolerations: list[dict[str, str]] = []

    def admission(self, pod_set: str, count: int) -> Admission:
        given = tuple(Toleration(*(one.get(name, "") for name in Toleration._fields)) for one in self.tolerations)
        return Admission("", "", "", count, (Flavor(self.node_selector, given),), pod_set)


def calc_kinds(given: dict[str, Any], admit: dict[str, Any] | None = None) -> Calculated:
    """Read an object, or a List such as a TrainJob with its runtimes or the pods of a group; start and stop it."""
    try:
        read = TABLE.read(_items(given))
        if read.refused:
            return Calculated(output={"refused": read.refused}, because=[])
        output, because = _facts(read)
        if admit is not None:
            admitted = msgspec.convert(admit, dict[str, _Admitted])
            counts = {one.name: one.pods for one in read.sets}
            output |= _writes(read, {name: one.admission(name, counts.get(name, 0)) for name, one in admitted.items()})
    except CaseError as exc:
        raise CaseError(f"input: {exc.field}", exc.why) from exc
    except msgspec.ValidationError as exc:
        raise CaseError("input: admit", str(exc)) from exc
    except RecursionError as exc:
        raise CaseError("input", "it is nested too deeply") from exc
    return Calculated(output=output, because=because)


def _items(given: Json) -> list[Json]:
    items = given.get("items") if given.get("kind") == "List" else [given]
    if not isinstance(items, list) or not items or not all(isinstance(one, dict) for one in items):
        raise CaseError("items", "accepted: a list of Kubernetes objects, at least one")
    return items


def _facts(read: Queued) -> tuple[dict[str, object], list[Because]]:
    pod_sets, because = [], []
    for one in map(pod_set_of, read.pod_sets):
        requests = {AMOUNTS.get(name, name): amount for name, amount in one.requests.items()}
        pod_sets.append({"name": one.name, "count": one.pods, "requests": requests})
        because.append(Because(of=f"pod_sets/{one.name}", bound="spec", terms={"count": one.pods, **requests}))
    output: dict[str, object] = {"refused": None, "pod_sets": pod_sets}
    for name in ("priority_class", "suspended", "settled", "finished", "succeeded", "ready", "done", "pods"):
        output[name] = getattr(read, name)
    return output | ({"held": True} if read.held else {}), because


def _writes(read: Queued, admitted: dict[str, Admission]) -> dict[str, object]:
    """Start the object, and stop the started one."""
    made = read.start(admitted)
    if isinstance(made, Conflict):
        return {"start": [], "stop": []}
    started = _after(read, made)
    stopping = started.stop()
    restoring = _after(started, stopping).back()
    writes = [*stopping, *([ObjectWrite(restoring)] if restoring else [])]
    return {"start": _shown(made), "stop": _shown(writes)}


def _after(read: Queued, writes: Sequence[ObjectWrite]) -> Queued:
    items = list(read.given)
    for write in writes:
        at = next((at for at, one in enumerate(items) if write.name == value_at(one, ("metadata", "name"))), 0)
        items[at] = changed(items[at], write.changes)
    return TABLE.read(items)


def _shown(writes: Sequence[ObjectWrite]) -> list[Json]:
    """Return writes by JSON pointer: the fields that decide whether and where pods run."""
    found = []
    for write in writes:
        shown = {_pointer(path): _bare(value) for path, value in write.changes.items() if path[-1] in SHOWN}
        if shown:
            found.append(({"object": write.name} if write.name else {}) | shown)
    return found


def _pointer(path: Path) -> str:
    return "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in path)


def _bare(value: Any) -> Any:
    """Leave out the metadata of templates that a start writes whole."""
    if isinstance(value, dict):
        return {key: one for key, one in value.items() if key != "metadata"}
    if not isinstance(value, list):
        return value
    path = ("trainingRuntimeSpec", "template", "spec", "replicatedJobs")
    found = []
    for one in value:
        if value_at(one, ("manager",)) == GATE:
            without: dict[Path, None] = {(*path, at, "template", "spec", "template", "metadata"): None
                       for at, _ in enumerate(value_at(one, path))}  # fmt: skip
            found.append(changed(one, without))
        else:
            found.append(one)
    return found
