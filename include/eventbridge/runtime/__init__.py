"""Provides the objects that every stage uses, the guards that stop a stage, and the publishing of operational
events."""
