"""The node's NUMA zones: read from the kernel and from the kubelet's own files, and put together as a record."""
