"""What people do with policies from a terminal: look, pause, resume, promote."""
