"""Use cases: functions of a view and a request that return a Change.  Pure, like the domain."""
