"""The job queue in Kubernetes: publishes queue objects and Jobs to Kafka, and carries out the decider's decisions.

``work`` defines the protocol of the kinds that the queue starts and stops, and the next step of an object. ``job``
implements it for Kubernetes Jobs. ``source`` watches the API server, and computes the records to write. ``actuator``
writes to it. ``kueue`` finds the served kinds and detects Kueue.
"""
