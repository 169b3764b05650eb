"""What RocketMQ sources and RocketMQ targets share: the settings of a client, how its errors are told, the client."""
