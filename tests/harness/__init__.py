"""What tests on the real control plane share: services whose metrics a test sets, operators as processes, waiting."""
