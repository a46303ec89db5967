"""Writes to the cluster: replicas, traffic weights, restoring; and who may write them."""
