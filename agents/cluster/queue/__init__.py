"""The job queue in Kubernetes: publishes its objects and Jobs to Kafka, and carries the decider's decisions out.

``work`` is the protocol of kinds that are started and stopped, ``job`` is the one that Kubernetes has, ``template``
what starting changes. ``steps`` decides what is due for an object, ``known`` which records are to be written; both are
pure. ``source`` follows the API server, ``actuator`` writes to it, ``rival`` looks for Kueue, ``queue`` joins them.
"""
