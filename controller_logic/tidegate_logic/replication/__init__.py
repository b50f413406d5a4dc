"""How fast partitions may move and replicas may catch up, and Kafka's throttles for it."""
