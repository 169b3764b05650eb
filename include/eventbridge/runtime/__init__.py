"""The objects that every stage uses, the guards that stop it, and the operational events that it publishes."""
