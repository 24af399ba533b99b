"""Asking name servers and brokers of RocketMQ by their own protocol (Java: the module rocketmq-remoting)."""
