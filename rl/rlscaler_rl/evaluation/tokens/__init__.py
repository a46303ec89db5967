"""Token services: autoscalers on drawn ones, tuned alike, and single ones by a command."""
