"""Make the Helm chart's templates from deploy/kubernetes: `make chart`.

Kustomize builds the base, and the base with each component. A difference becomes a condition on one of the chart's
values, and what a user sets (images, replicas, resources) becomes a reference to a value. Nobody edits the templates.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import yaml

from generate.chart_policy import with_policy

DEPLOY = Path(__file__).parent.parent / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
CHART = DEPLOY / "chart"
SCHEMA = "values.schema.json"
"""Written by hand but for the policy's definitions."""
COPIED = {
    "files/alerts.yaml": "prometheus/alerts.yaml",
    "files/cluster.json": "grafana/cluster.json",
    "files/node.json": "grafana/node.json",
}
"""Of the chart's files, which files of ``deploy`` they repeat: helm reads nothing outside a chart."""
GENERATED = "{{/* Generated from deploy/kubernetes by `make chart`: change it there. */}}\n"
SYSTEM = "slacktide-system"
Json = dict[str, Any]
Key = tuple[str, str, str]
"""Kind, namespace, name."""

CONDITIONS: Mapping[str, str] = {
    "scheduler": ".Values.scheduler.enabled",
    "console": ".Values.console.enabled",
    "queue-decider": ".Values.queue.enabled",
    "queue-bridge": ".Values.queue.enabled",
    "queue-pods": "and .Values.queue.enabled .Values.queue.pods",
    "queue-crds": "and .Values.queue.enabled .Values.queue.crds",
    "gangs": "and .Values.scheduler.enabled .Values.scheduler.gangs",
    "gang-crds": "and .Values.scheduler.enabled .Values.scheduler.gangCrds",
    "pending-deadlines": ".Values.bridge.pendingDeadlines",
    "reservations": "and .Values.scheduler.enabled .Values.scheduler.reservations",
    "reservation-crds": "and .Values.scheduler.enabled .Values.scheduler.reservationCrds",
    "console-tls": ".Values.console.tls",
    "plain-kafka": 'not (include "slacktide.secured" .)',
    "kubelet-self-signed": ".Values.kubelet.insecure",
    "kubelet-before-1.33": 'eq (include "slacktide.kubeletProxy" .) "true"',
    "cert-manager": ".Values.webhook.certManager",
    "webhook-clients": ".Values.webhook.clientCertificates",
    "evict-by-load": ".Values.descheduler.evict",
    "webhook-required": ".Values.webhook.failClosed",
    "refuse-burstable-batch": ".Values.webhook.refuseBurstableBatch",
    "network-policy": ".Values.networkPolicies",
    "zones": ".Values.agent.zones",
    "pod-pressure": ".Values.agent.podPressure",
    "without-sys-resource": "not .Values.agent.sysResource",
}
"""Of each component: when the chart has it."""
OPTIONAL = ("scheduler", "console", "queue-decider")
"""Components that are a part of their own, which others change."""
BESIDE = ".Values.besideKoordinator"
BESIDE_FOLDER = "overlays/beside-koordinator"
AGENT: Key = ("DaemonSet", SYSTEM, "slacktide-agent")
DRY_RUN: Key = ("DaemonSet", SYSTEM, "slacktide-agent-dry-run")
"""Agents beside Koordinator, which the components change that change other agents."""
LANGUAGE = f"and .Values.language.install (not {BESIDE})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A build that holds under a condition."""

    condition: str
    objects: Mapping[Key, Json]


class _OnOneLine(dict[str, Any]):
    """An item of a list that components append to: on one line, two additions never interleave."""


class _Dumper(yaml.SafeDumper):
    """YAML as people write it: texts of several lines as blocks."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


def _on_one_line(dumper: yaml.SafeDumper, item: _OnOneLine) -> yaml.MappingNode:
    return dumper.represent_mapping("tag:yaml.org,2002:map", item, flow_style=True)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(_OnOneLine, _on_one_line)


def build(kubectl: str, resources: Sequence[str], components: Sequence[str] = ()) -> dict[Key, Json]:
    """What kustomize makes of folders of deploy/kubernetes.

    Raises:
        subprocess.CalledProcessError: kubectl failed; it has printed why.
    """
    with tempfile.TemporaryDirectory() as folder:
        start = Path(folder).resolve()
        named = {
            "resources": [os.path.relpath(KUBERNETES / name, start) for name in resources],
            "components": [os.path.relpath(KUBERNETES / "components" / name, start) for name in components],
        }
        (start / "kustomization.yaml").write_text(yaml.safe_dump(named))
        built = subprocess.run(  # noqa: S603 - the caller names the program
            [kubectl, "kustomize", folder], stdout=subprocess.PIPE, text=True, check=True
        )
    return {key_of(each): each for each in yaml.safe_load_all(built.stdout)}


def key_of(each: Json) -> Key:
    """What names an object in a cluster."""
    return each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]


def files(kubectl: str) -> dict[str, str]:
    """The text of each generated file by its path in the chart.

    Raises:
        subprocess.CalledProcessError: kubectl failed; it has printed why.
    """
    copied = {name: (DEPLOY / source).read_text() for name, source in COPIED.items()}
    schema = {SCHEMA: with_policy((CHART / SCHEMA).read_text())}
    return copied | schema | {f"templates/{name}": text for name, text in _templates(kubectl).items()}


def _templates(kubectl: str) -> dict[str, str]:
    language = build(kubectl, ["language"])
    plain = build(kubectl, ["language", "base"])
    whole = build(kubectl, ["language", "base"], OPTIONAL)
    optional = {name: build(kubectl, ["language", "base"], [name]).keys() - plain.keys() for name in OPTIONAL}
    wanted = {key: CONDITIONS[name] for name, keys in optional.items() for key in keys}
    others = [name for name in CONDITIONS if name not in OPTIONAL]
    variants = [
        Variant(condition=CONDITIONS[name], objects=build(kubectl, ["language", "base"], [*OPTIONAL, name]))
        for name in others
    ]
    of_agents = [name for name, one in zip(others, variants, strict=True) if one.objects[AGENT] != whole[AGENT]]
    beside = build(kubectl, [BESIDE_FOLDER], OPTIONAL)
    del beside["ConfigMap", SYSTEM, "slo-controller-config"]  # templates/policy.yaml makes it from values
    dry_runs = [
        Variant(condition=CONDITIONS[name], objects=build(kubectl, [BESIDE_FOLDER], [*OPTIONAL, name]))
        for name in of_agents
    ]
    documents = {"agent.yaml": [_document(DRY_RUN, beside, dry_runs, [BESIDE])]}
    del beside[DRY_RUN]
    variants.append(Variant(condition=BESIDE, objects={**beside, **language}))
    for key in sorted({key for variant in variants for key in variant.objects} | set(whole)):
        if key == ("Namespace", "", SYSTEM):
            continue  # helm's --create-namespace makes it
        needs = [LANGUAGE] if key in language else []
        needs += [wanted[key]] if key in wanted else []
        part = "language" if key in language else _part(key, whole, variants)
        documents.setdefault(f"{part}.yaml", []).append(_document(key, whole, variants, needs))
    return {name: GENERATED + "".join(each) for name, each in sorted(documents.items())}


def _part(key: Key, whole: Mapping[Key, Json], variants: Sequence[Variant]) -> str:
    each = whole.get(key) or next(one.objects[key] for one in variants if key in one.objects)
    part: str = each["metadata"].get("labels", {}).get("app.kubernetes.io/component", "")
    return part or ("scheduler" if "scheduler" in key[2] else "common")


def _document(key: Key, whole: Mapping[Key, Json], variants: Sequence[Variant], needs: list[str]) -> str:
    if key not in whole:
        [one] = [variant for variant in variants if key in variant.objects]
        needs, body = [*needs, one.condition], _lines(one.objects[key])
    else:
        needs = [*needs, *(_negated(one.condition) for one in variants if key not in one.objects)]
        changed = [(one.condition, _lines(one.objects[key])) for one in variants if key in one.objects]
        body = list(merged(_lines(whole[key]), changed))
    text = _with_values("\n".join(["---", *body]))
    for need in needs:
        text = f"{{{{- if {need} }}}}\n{text}\n{{{{- end }}}}"
    return text + "\n"


def merged(lines: Sequence[str], variants: Sequence[tuple[str, Sequence[str]]]) -> Iterator[str]:
    """Lines of a template that gives ``lines``, and each variant's where its condition holds."""
    added: dict[int, list[str]] = {}
    without: dict[int, list[str]] = {}
    for condition, changed in variants:
        for what, start, end, first, last in SequenceMatcher(None, lines, changed, autojunk=False).get_opcodes():
            if what in {"insert", "replace"}:
                block = [f"{{{{- if {condition} }}}}", *changed[first:last], "{{- end }}"]
                added.setdefault(start, []).extend(block)
            if what in {"delete", "replace"}:
                for at in range(start, end):
                    without.setdefault(at, []).append(condition)
    for at, line in enumerate([*lines, ""]):
        yield from added.get(at, [])
        if at < len(lines):
            refused = [_negated(condition) for condition in without.get(at, [])]
            yield from [*(f"{{{{- if {one} }}}}" for one in refused), line, *("{{- end }}" for _ in refused)]


def _negated(condition: str) -> str:
    return condition[5:-1] if condition.startswith("not (") else f"not ({condition})"


def _lines(each: Json) -> list[str]:
    text = yaml.dump(_marked(each), Dumper=_Dumper, sort_keys=False, width=sys.maxsize)
    return text.rstrip("\n").split("\n")


def _marked(each: Json) -> Json:
    """A copy in which values' places are marked, as ``VALUE(expression)``."""
    each = yaml.safe_load(yaml.safe_dump(each))
    if each["kind"] in {"CustomResourceDefinition", "PriorityClass", "Namespace"}:
        each["metadata"].setdefault("annotations", {})["helm.sh/resource-policy"] = "VALUE(slacktide.keep)"
    if key_of(each) == ("ConfigMap", SYSTEM, "slacktide-kafka"):
        each["data"]["SLACKTIDE_BOOTSTRAP"] = 'VALUE(include "slacktide.bootstrap" . | quote)'
    if each["kind"] == "PersistentVolumeClaim":
        each["spec"]["resources"]["requests"]["storage"] = "VALUE(.Values.console.storage.size | quote)"
    if each["kind"] in {"Deployment", "DaemonSet"}:
        _mark_workload(each)
    return each


def _mark_workload(each: Json) -> None:
    part = each["metadata"]["name"].removeprefix("slacktide-").removesuffix("-dry-run")
    spec = each["spec"]["template"]["spec"]
    if each["kind"] == "Deployment" and "strategy" not in each["spec"]:
        each["spec"]["strategy"] = "VALUE(slacktide.strategy)"
    if "replicas" in each["spec"]:
        each["spec"]["replicas"] = f'VALUE(include "slacktide.replicas" (list . .Values.{part}))'
    for container in (*spec.get("initContainers", []), *spec["containers"]):
        name = "kubeScheduler" if container["name"] == "kube-scheduler" else part
        image = "slacktide.kubeScheduler" if name == "kubeScheduler" else "slacktide.image"
        container["image"] = f'VALUE(include "{image}" . | quote)'
        if container["name"] != "topics":
            values = "scheduler.kubeScheduler" if name == "kubeScheduler" else part
            container["resources"] = f'VALUE(include "slacktide.resources" (list . .Values.{values}))'
        if part == "console":
            container["args"] = [STORE_GIB if one.startswith("--store-gib=") else one for one in container["args"]]
        if "volumeMounts" in container:
            container["volumeMounts"] = [_OnOneLine(one) for one in container["volumeMounts"]]
    if "tolerations" in spec:
        spec["tolerations"] = f"VALUE(toJson .Values.{part}.tolerations)"
    spec["volumes"] = [_OnOneLine(one) for one in spec["volumes"]]


STORE_GIB = 'VALUE(printf "--store-gib=%d" (int .Values.console.storage.gib) | quote)'
KEEP = re.compile(r"^(?: *annotations:\n)? *helm\.sh/resource-policy: VALUE\(slacktide\.keep\)$", re.MULTILINE)
"""With the heading, unless there are other annotations."""
STRATEGY = re.compile(r"^( *strategy: )VALUE\(slacktide\.strategy\)$", re.MULTILINE)
NO_SURGE = "{rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}"
"""An evaluation has no room for a pod beside the one that it replaces."""
ACCESS_MODES = re.compile(r"^( *)accessModes:$", re.MULTILINE)
ACCOUNT = re.compile(r"^( *)serviceAccountName: .*$", re.MULTILINE)
VALUE = re.compile(r"'?VALUE\((.*)\)'?$", re.MULTILINE)


def _with_values(text: str) -> str:
    """Marks turned into references, and what every pod gets."""
    text = KEEP.sub(lambda found: "\n".join(_when("if .Values.language.keep", _kept(found[0]))), text)
    text = STRATEGY.sub(lambda found: "\n".join(_when("if .Values.kafka.embedded", found[1] + NO_SURGE)), text)
    pull = "imagePullSecrets: {{ toJson . }}"
    text = ACCOUNT.sub(
        lambda found: "\n".join([found[0], *_when("with .Values.image.pullSecrets", found[1] + pull)]), text
    )
    storage = "storageClassName: {{ . | quote }}"
    text = ACCESS_MODES.sub(
        lambda found: "\n".join([*_when("with .Values.console.storage.class", found[1] + storage), found[0]]), text
    )
    return VALUE.sub(lambda found: "{{ " + found[1].replace("''", "'") + " }}", text)


def _kept(line: str) -> str:
    return line.replace("VALUE(slacktide.keep)", "keep")


def _when(condition: str, line: str) -> list[str]:
    return [f"{{{{- {condition} }}}}", line, "{{- end }}"]


def main(kubectl: str) -> None:
    """Write the files, and remove templates that nothing makes any more."""
    made = files(kubectl)
    for path in (CHART / "templates").glob("*.yaml"):
        if str(path.relative_to(CHART)) not in made and path.read_text().startswith(GENERATED):
            path.unlink()
    for name, text in made.items():
        (CHART / name).parent.mkdir(exist_ok=True)
        (CHART / name).write_text(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
