"""The console's history: one SQLite file with one writing follower, read by the pages.

``store = Store(path)``, ``follower = Follower(cluster, store, SystemClock())``, ``await follower.run()`` in a task, and
``History(path, lambda: follower.recorder)`` for the pages; ``History(path)`` reads a file without a writer.
"""
