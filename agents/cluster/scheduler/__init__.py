"""What a kube-scheduler asks about pods that name ``koord-scheduler``: which nodes may take one, and which should."""
