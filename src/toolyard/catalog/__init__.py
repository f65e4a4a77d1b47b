"""What tools exist: definitions and their health, the cache with its storage, exposed names, schema views."""
