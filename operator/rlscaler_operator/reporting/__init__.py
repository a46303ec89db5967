"""What people and tools see: conditions and status, Events, the audit log, the operator's own metrics."""
