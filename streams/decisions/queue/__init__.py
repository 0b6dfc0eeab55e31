"""Rules of the job queue: quotas in a tree of cohorts, queue order, flavor assignment, Jobs. Pure.

Reading: kueue v0.19.2 (8eab6877), default feature gates. Kinds, fields and reasons are named as in
``kueue.x-k8s.io/v1beta2``.
"""
