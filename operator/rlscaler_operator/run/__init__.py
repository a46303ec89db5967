"""Starting and stopping the operator: kopf handlers, health, and what lives as long as the process."""
