"""PURE: exclusive and reserved CPUs of pods (LSE, LSR), and the pools of all others, as Koordinator divides them.

Reading: koordinator a7a1b76b, pkg/scheduler/plugins/nodenumaresource, pkg/koordlet/{statesinformer,runtimehooks}.
"""
