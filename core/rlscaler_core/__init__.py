"""Parts that operator and learning share: the decision function, the API models and the queueing model."""
