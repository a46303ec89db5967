"""Eight services of three namespaces that share the GPUs of one cluster: without a budget, and with one."""
