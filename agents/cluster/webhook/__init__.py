"""The admission webhook: applies profiles to new pods, and decides whether an agent may evict a pod."""
