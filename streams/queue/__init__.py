"""The job queue's decider, pure: records and the time go in, decisions come out.

A turn takes what has come since the last one, at one time, and makes one record of it: what was read, when, and where
each workload stands that changed. So the record is the commit, too: nothing is decided that is not in it, and nothing
is read twice. ``ledger`` folds decisions: who holds quota, or may. ``decider`` makes them. ``replay`` makes them again.

The law: quota is booked with the decision and given back only by an outcome that names it, or when the workload is
deleted. Victims hold theirs until they have stopped.
"""
