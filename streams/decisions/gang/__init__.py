"""Rules of gangs: which pods start together or not at all, and whether a cluster has places for all of them. Pure.

Reading: koordinator a7a1b76b, pkg/scheduler/plugins/coscheduling and apis/extension/coscheduling.go; scheduler-plugins
903da7df, pkg/coscheduling. Places are planned before any pod is bound, so half a gang never holds one.
"""
