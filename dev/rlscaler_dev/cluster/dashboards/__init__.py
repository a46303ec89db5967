"""Grafana dashboards without Grafana: does each panel have data, and what does it look like?"""
