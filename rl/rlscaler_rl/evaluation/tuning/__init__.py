"""Search for the settings of every contender with equal budgets, and the cache of the best ones."""
