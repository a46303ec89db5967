"""The suggestion server: it tells kube-scheduler where a pod belongs. It binds nothing and may die at any time."""
