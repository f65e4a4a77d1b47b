"""Policy rules, one module each. ``toolyard.policy.policy`` has the order in which they are evaluated."""
