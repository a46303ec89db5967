"""Tenants: services that share a pool of GPUs, played in the simulator under one arbiter or none."""
