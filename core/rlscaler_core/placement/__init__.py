"""Where pods belong: scores of nodes as pure functions of arrays, in the simulator, in replays and on a cluster."""
