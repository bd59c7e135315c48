"""What is measured. Every function here runs in a child process and returns figures by name."""
