"""Rules of NUMA zones: which node can align a pod, how well, and what is reserved there. Pure.

Reading: scheduler-plugins 903da7df, pkg/noderesourcetopology; kubernetes v1.35.4, pkg/kubelet/cm/topologymanager.

Each rule decides as its reference does. With ``corrected`` it decides as docs/numa-rules.md lists instead.
"""
