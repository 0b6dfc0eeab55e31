"""What the console keeps of the log: one file of SQLite, written by one follower, read by the pages.

``store = Store(path)``, ``follower = Follower(cluster, store, SystemClock())``, ``await follower.run()`` in a task, and
``History(path, lambda: follower.recorder)`` for the pages; ``History(path)`` reads a file that nobody writes to.
"""
