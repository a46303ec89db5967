"""Token services: autoscalers on drawn ones, tuned alike, and single ones by a command."""

SERVERS = ("8b-l40s", "8b-a100", "8b-2xa100", "70b-8xh100")
"""Names in `simulation.tokens.servers`, whose package takes a second to import, for the help of commands."""

SERVER_HELP = f"Model on a GPU: {', '.join(SERVERS)}, or a calibration.json of `rlscaler tokens calibrate`."

TABLE_WIDTH = 140
"""Columns of a terminal that the tables need."""
