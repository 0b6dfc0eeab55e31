"""The bridge: publishes Kubernetes' nodes and policy to Kafka, and figures of nodes from Kafka to Kubernetes.

``lease``, ``silence``, ``pace``, ``node_status``, ``node_metric`` and ``writing`` decide, and do nothing else; around
them ``election``, ``sources`` and ``mirror`` use the API server and Kafka, and ``bridge`` puts them together.
"""
