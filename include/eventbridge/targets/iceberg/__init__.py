"""The target type `iceberg`, which appends spans of deliveries to an Apache Iceberg table."""
