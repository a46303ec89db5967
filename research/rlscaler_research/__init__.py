"""Studies that are not part of the product: what each part of the training is worth."""
