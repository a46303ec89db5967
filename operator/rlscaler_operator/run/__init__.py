"""Starting and stopping the operator: kopf handlers, watches, health, and what lives as long as the process."""
