"""Running pods of the real node are resized by a policy, and their limits are read from the kernel."""
