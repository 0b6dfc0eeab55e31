"""The bridge: what Kubernetes says of nodes and policy into the log, what the log says of nodes into Kubernetes.

``lease``, ``silence``, ``pace``, ``node_status``, ``node_metric`` and ``writing`` decide, and do nothing else; around
them ``election``, ``sources`` and ``mirror`` touch the API server and the log, and ``bridge`` puts them together.
"""
