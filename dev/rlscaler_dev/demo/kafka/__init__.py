"""`rlscaler demo kafka`: consumers of a Kafka topic under one load, scaled on CPU and scaled on lag."""
