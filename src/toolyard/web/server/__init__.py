"""Running the web server: start-up, socket, run loop, health, metrics, logs."""
