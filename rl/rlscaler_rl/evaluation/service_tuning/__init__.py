"""A policy for one service: fine-tuned on its constants and load, compared with today's autoscaler, published."""
