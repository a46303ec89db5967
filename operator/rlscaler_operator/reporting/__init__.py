"""Reports on policies and budgets: conditions and status, Events, the audit log, the operator's own metrics."""
