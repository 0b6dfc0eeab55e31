"""A kind of queued objects that a user adds."""

ROW = {
    "apiVersion": "example.com/v1",
    "kind": "Trainer",
    "plural": "trainers",
    "podSets": [{"path": "spec.roles[]", "name": "name"}],
    "suspend": "spec.halted",
    "settled": {"path": "status.state", "values": ["Halted"]},
    "succeeded": {"path": "status.state", "values": ["Done"]},
    "pods": ["example.com/trainer={metadata.name}"],
}
