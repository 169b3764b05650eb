"""What operators call: status, audit, repair, release, targets, deliver."""
