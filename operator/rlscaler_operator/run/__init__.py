"""Start and end of the operator: kopf handlers, watches, health, and the objects of the whole process."""
