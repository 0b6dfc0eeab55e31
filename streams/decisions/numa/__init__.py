"""Rules of NUMA zones: which nodes can align a pod, their scores, and reservations. Pure.

Reading: scheduler-plugins 903da7df, pkg/noderesourcetopology; kubernetes v1.35.4, pkg/kubelet/cm/topologymanager.
Each rule decides as its reference does. ``corrected`` enables the differences that docs/numa-rules.md lists.
"""
