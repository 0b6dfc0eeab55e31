"""Where the pod list comes from: a file, the kubelet, or a host's slices and containers."""
