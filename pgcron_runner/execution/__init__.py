"""Running commands: one module a kind, and the guard process that owns all operating system processes."""
