"""Tests on real kernels: cgroup v1 of this machine, v2 in user-mode Linux (``cgroup2-vm``) and QEMU (``cgroup2-qemu``)."""
