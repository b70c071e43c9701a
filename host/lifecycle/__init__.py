"""The life of instances: one owner per deployment, a budget in bytes, queues with bounds, cool-downs."""
