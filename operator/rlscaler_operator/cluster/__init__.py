"""The Kubernetes side: client, watch cache, Leases, referenced objects, Events and the limit on concurrent requests."""
