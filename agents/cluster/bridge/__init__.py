"""The bridge: publishes Nodes and policy to Kafka, and figures from Kafka to Node status.

``node_status`` and ``writing`` are pure. ``election``, ``sources`` and ``mirror`` access the API server and Kafka.
``bridge`` combines them.
"""
