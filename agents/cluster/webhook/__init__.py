"""What the API server asks: how a new pod comes out of the profiles, and whether an agent may evict a pod."""
