"""Rules of reservations: room on a node for pods that are not there yet. Pure.

Reading: koordinator a7a1b76b, apis/scheduling/v1alpha1/reservation_types.go, pkg/scheduler/plugins/reservation,
pkg/util/reservation. A placeholder pod holds the room, so that every scheduler respects it.
"""
