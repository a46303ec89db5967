"""Load and the thing under load: request patterns, Locust users, and an emulated inference service."""
