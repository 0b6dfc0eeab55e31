"""What touches the API server: the bridge between it and the log, and the webhook that it asks."""
