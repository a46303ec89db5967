"""Running pods of the real node are resized by a policy, and the kernel is asked what they got."""
