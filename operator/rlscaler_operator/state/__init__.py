"""What is known of every policy between two ticks."""
