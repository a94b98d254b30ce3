"""What eryx costs, each time as a ratio to a baseline that was measured in the same run.  See README.md."""
