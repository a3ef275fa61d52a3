"""Kafka's log on Spark: a data source, and jobs that run on a cluster as on one machine; needs ``kafkalog[spark]``."""
