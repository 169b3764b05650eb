"""What every stage is given, the guards that stop it, and the operational events that it publishes."""
