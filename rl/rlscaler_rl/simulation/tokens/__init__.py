"""The token level: servers of language models that batch their requests, iteration by iteration."""
