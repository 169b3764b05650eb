"""What the product is told: settings, connections, and quantities as people write them."""
