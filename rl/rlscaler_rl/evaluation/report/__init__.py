"""Reports for people: terminal, text and HTML have the same content, losses first."""
