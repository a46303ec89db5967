"""Real model servers under load, scraped by a real Prometheus; skipped where they are not installed."""
