"""The bridge: publishes Nodes and policy to Kafka, and figures from Kafka to Node status.

``lease``, ``node_status``, ``topology`` and ``writing`` are pure. ``election``, ``sources`` and ``mirror`` access the
API server and Kafka. ``bridge`` combines them.
"""
