"""Evidence: how the policy scores, against whom it loses, and whether the run can be believed."""
