"""The whole product under load on one machine: control plane, service, load, operator, records and pictures."""
