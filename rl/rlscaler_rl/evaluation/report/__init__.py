"""Reports for people: terminal, text and HTML say the same, losses first."""
