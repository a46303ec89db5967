"""KEDA's external scaler protocol: a ScaledObject takes the replicas that a policy recommends.

Optional (the extra `keda`); imported only where `--external-scaler-port` is set. The messages in
`external_scaler_pb2` are generated from the .proto file by `make generate`.
"""
