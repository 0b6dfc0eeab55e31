"""What long-running processes share: settings, logs, endpoints, child processes."""
