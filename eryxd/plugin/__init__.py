"""What a plugin sees of eryx: typed protocols and descriptors."""
