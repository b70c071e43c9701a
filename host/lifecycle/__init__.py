"""The life cycle of instances: deployments, the memory budget, queues and cool-downs."""
