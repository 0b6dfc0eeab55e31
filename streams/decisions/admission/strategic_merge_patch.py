"""Implements Kubernetes' strategic merge patch for pods.

Maps are merged, and null deletes a key. Lists are replaced, except those in ``MERGE_KEYS``. Their items are merged by
key, and patched items take the patch's order. Supports ``$patch: delete`` and ``replace``, ``$retainKeys``,
``$setElementOrder/LIST`` and ``$deleteFromPrimitiveList/LIST``. Neither the pod nor the patch is modified.

Reading: kubernetes v1.31, apimachinery/pkg/util/strategicpatch/patch.go (mergeMap, mergeSlice, mergePatchIntoOriginal)
and the patchMergeKey tags in api/core/v1/types.go.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from slacktide.schemas.errors import SlacktideError

JsonObject = Mapping[str, Any]

DIRECTIVE = "$patch"
RETAIN = "$retainKeys"
ORDER = "$setElementOrder/"
DELETE = "$deleteFromPrimitiveList/"
_DIRECTIVES = (DIRECTIVE, RETAIN, ORDER, DELETE)

_ITSELF = ""
"""Merge key of lists of texts: the item itself."""
_OF_CONTAINERS = {
    "": "name",
    ".env": "name",
    ".ports": "containerPort",
    ".volumeMounts": "mountPath",
    ".volumeDevices": "devicePath",
}
MERGE_KEYS = {
    "metadata.finalizers": _ITSELF,
    "metadata.ownerReferences": "uid",
    "spec.volumes": "name",
    "spec.imagePullSecrets": "name",
    "spec.hostAliases": "ip",
    "spec.topologySpreadConstraints": "topologyKey",
    "spec.schedulingGates": "name",
    "spec.resourceClaims": "name",
    **{
        f"spec.{containers}{suffix}": key
        for containers in ("containers", "initContainers", "ephemeralContainers")
        for suffix, key in _OF_CONTAINERS.items()
    },
}
"""Path of each merged list -> the key of its items."""


class PatchError(SlacktideError):
    """An invalid patch, or a patch that does not fit the object."""


def patched(pod: JsonObject, patch: object) -> dict[str, Any]:
    """Merge the patch into the pod. Raise PatchError if the patch is not an object or cannot be merged."""
    if not isinstance(patch, dict):
        raise PatchError("the patch is not an object")
    try:
        return _merged(pod, patch, "")
    except RecursionError:
        raise PatchError("the patch is nested too deep") from None


def _merged(original: JsonObject, patch: JsonObject, path: str) -> dict[str, Any]:
    if DIRECTIVE in patch:
        if patch[DIRECTIVE] not in ("delete", "replace"):
            raise PatchError(f"{path or 'pod'}: {DIRECTIVE}: {patch[DIRECTIVE]!r} is neither delete nor replace")
        return dict(_plain(patch)) if patch[DIRECTIVE] == "replace" else {}
    merged = _retained(original, patch, path)
    for name, value in patch.items():
        if not name.startswith(_DIRECTIVES):
            _merge_value(merged, name, value, _within(path, name))
    for directive, value in patch.items():
        if directive.startswith(ORDER):
            name = directive.removeprefix(ORDER)
            _reorder(merged, name, value, (original.get(name), patch.get(name)), _within(path, name))
        elif directive.startswith(DELETE):
            name = directive.removeprefix(DELETE)
            _delete(merged, name, value, _within(path, name))
    return merged


def _within(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _retained(original: JsonObject, patch: JsonObject, path: str) -> dict[str, Any]:
    """Return the map to merge into, limited to ``$retainKeys`` if the patch has it."""
    if RETAIN not in patch:
        return dict(original)
    retained = patch[RETAIN]
    given = [name for name, value in patch.items() if value is not None and not name.startswith(_DIRECTIVES)]
    if not isinstance(retained, list) or any(name not in retained for name in given):
        raise PatchError(f"{path or 'pod'}: {RETAIN} is no list of all keys that the patch gives")
    return {name: value for name, value in original.items() if name in retained}


def _merge_value(merged: dict[str, Any], name: str, value: object, path: str) -> None:
    original = merged.get(name)
    if isinstance(original, dict) and isinstance(value, dict):
        merged[name] = _merged(original, value, path)
    elif isinstance(original, list) and isinstance(value, list):
        merged[name] = _merged_list(original, value, path)
    # Unlike Kubernetes, apply a "replace" that has no original. Kubernetes drops it with its fields.
    elif value is None or (_directs(value) and value[DIRECTIVE] != "replace"):
        merged.pop(name, None)
    else:
        merged[name] = _plain(value)


def _directs(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict) and DIRECTIVE in value


def _plain(value: Any) -> Any:
    """Return a new value without nulls and directives."""
    if isinstance(value, dict):
        plain: dict[str, Any] = {}
        for name, one in value.items():
            if not name.startswith(_DIRECTIVES):
                _merge_value(plain, name, one, "")
        return plain
    if isinstance(value, list):
        return [_plain(one) for one in value if not _directs(one)]
    return value


def _merged_list(original: Sequence[Any], patch: Sequence[Any], path: str) -> list[Any]:
    key = MERGE_KEYS.get(path)
    if key is None:
        return list(_plain(patch))
    added = [item for item in patch if not _directs(item)]
    directives = [item for item in patch if _directs(item)]
    kinds = [item[DIRECTIVE] for item in directives]  # else they delete items
    for kind in kinds:
        if kind not in ("delete", "replace"):
            raise PatchError(f"{path}: {DIRECTIVE}: {kind!r} is neither delete nor replace")
    if "replace" in kinds:
        return list(_plain(added))
    gone = [_key_of(item, key, path) for item in directives]
    kept = [item for item in original if _key_of(item, key, path) not in gone] if gone else original
    items, places = list(kept), _places(kept, path)
    for item in added:
        name = _key_of(item, key, path)
        if name not in places:
            places[name] = len(items)
            items.append(_plain(item))
        elif key != _ITSELF:
            at = places[name]
            items[at] = _merged(items[at], item, path)
    return _ordered(items, added, kept, path)


def _key_of(item: object, key: str, path: str) -> object:
    if key == _ITSELF and isinstance(item, str):
        return item
    if key != _ITSELF and isinstance(item, dict) and key in item and not isinstance(item[key], dict | list):
        return item[key]
    raise PatchError(f"{path}: an item {f'without {key!r}' if key else 'that is no text'} cannot be merged")


def _places(items: Sequence[Any], path: str) -> dict[object, int]:
    """Return where each key is first: a pod may have thousands of items."""
    places: dict[object, int] = {}
    for at, item in enumerate(items):
        places.setdefault(_key_of(item, MERGE_KEYS[path], path), at)
    return places


def _ordered(items: Sequence[Any], wanted: Sequence[Any], original: Sequence[Any], path: str) -> list[Any]:
    """Sort wanted items in wanted order, the others in original order, and interleave both.

    A wanted item precedes the others, except those that it originally followed.
    """
    first, then = _places(wanted, path), _places(original, path)
    named = [(_key_of(item, MERGE_KEYS[path], path), item) for item in items]
    ours = sorted((pair for pair in named if pair[0] in first), key=lambda pair: first[pair[0]])
    others = sorted((pair for pair in named if pair[0] not in first), key=lambda pair: then[pair[0]])
    ordered = []
    for name, item in others:
        while ours and not (ours[0][0] in then and then[name] < then[ours[0][0]]):
            ordered.append(ours.pop(0)[1])
        ordered.append(item)
    return [*ordered, *(item for _, item in ours)]


def _reorder(merged: dict[str, Any], name: str, order: object, lists: tuple[Any, Any], path: str) -> None:
    """Apply ``$setElementOrder``, which must contain all items of the patch in the patch's order."""
    original, given = (found if isinstance(found, list) else [] for found in lists)
    key = MERGE_KEYS.get(path)
    if key is None or not isinstance(order, list):
        raise PatchError(f"{path}: only a list that is merged can be ordered, and by a list")
    wanted = [_key_of(item, key, path) for item in order]
    rest = iter(wanted)
    if wanted and not all(_key_of(item, key, path) in rest for item in given if not _directs(item)):
        raise PatchError(f"{path}: {ORDER.rstrip('/')} is not in the order of the patch's items")
    if wanted and isinstance(merged.get(name), list):
        merged[name] = _ordered(merged[name], order, original, path)


def _delete(merged: dict[str, Any], name: str, gone: object, path: str) -> None:
    if MERGE_KEYS.get(path) != _ITSELF or not isinstance(gone, list):
        raise PatchError(f"{path}: items can be deleted only from a merged list of texts, and by a list")
    if isinstance(merged.get(name), list):
        merged[name] = [item for item in merged[name] if item not in gone]
