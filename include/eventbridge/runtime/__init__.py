"""What every stage is given, and how it says that its time is over or a file is damaged."""
