"""Single questions: by key, by time, by place."""
