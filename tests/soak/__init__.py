"""Many people for a long time, on real processes: what is lost, what grows, what stays unanswered."""
