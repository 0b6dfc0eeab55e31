"""Rules of the job queue: quotas in a tree of cohorts, the order of workloads, their flavors, their Jobs. Pure.

Reading: kueue v0.19.2 (8eab6877), feature gates at their defaults. Names of kinds, fields and reasons are those of
``kueue.x-k8s.io/v1beta2``.
"""
