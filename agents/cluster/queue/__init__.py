"""The job queue in Kubernetes: publishes queue objects and Jobs to Kafka, and carries out the decider's decisions.

``work`` defines the protocol of the kinds that the queue starts and stops. ``job`` implements it for Kubernetes Jobs.
``steps`` computes the next step of an object. ``known`` computes the records to write. ``source`` watches the API
server, ``actuator`` writes to it, ``kinds`` finds the served kinds and detects Kueue.
"""
