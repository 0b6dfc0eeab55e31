"""Jobs as a fold of events: from what the bridge saw of a Job's pods to where the Job stands. Pure."""
