"""Learning where pods belong: the simulator of clusters, the replay of the openb trace, DQN and comparisons."""
