"""Development tools that are not part of the product: a local cluster, the demo, end-to-end runs, generators."""
