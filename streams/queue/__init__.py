"""The job queue's decider, pure: records and time in, decisions out.

A turn reads new records and makes one decision record: inputs, time and changed workloads. The record is also the
commit, so nothing is read twice. ``ledger`` folds decisions, ``decider`` makes them, ``replay`` repeats them.
Quota is booked with the decision. It is released by an outcome that names the decision, or when the workload is
deleted. Preempted workloads hold their quota until they stop.
"""
