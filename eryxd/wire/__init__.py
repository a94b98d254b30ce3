"""MessagePack-RPC frames, without I/O."""
