"""A real Kubernetes for the tests: etcd and kube-apiserver, and on them a real node. Loopback only."""
