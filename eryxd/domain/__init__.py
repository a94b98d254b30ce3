"""The rules.  Pure: no clock, no ids, no files, no sockets, no loop."""
