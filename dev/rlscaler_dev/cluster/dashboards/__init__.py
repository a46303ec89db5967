"""Grafana dashboards without Grafana: whether each panel has data, and a picture of it."""
