"""Settings, logs, endpoints and child processes of long-running processes."""
