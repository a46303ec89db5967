"""A policy for one service: fine-tuned on its own constants and load, tried against what it uses today, published."""
