"""`rlscaler init`: a policy in Shadow from what runs, with a comment for every guess."""
