"""Issues an agent the key of its node in exchange for its pod-bound ServiceAccount token."""
