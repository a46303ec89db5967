"""Generators of committed files: CRD, charts and reference pages, each with a check for drift."""
