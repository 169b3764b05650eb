"""Provides the objects that every stage uses, checks that stop a stage, and the publishing of operational events."""
