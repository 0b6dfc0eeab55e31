"""The node's NUMA zones, read from the kernel and the kubelet's files, and published as a record."""
