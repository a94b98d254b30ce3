"""The process: engine, store, socket, runs.  The only package with a clock and a loop."""
