"""Every contender's settings, searched for with the same budget, and what was found."""
