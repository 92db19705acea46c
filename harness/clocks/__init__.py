"""What time a row is charged: the wall, or a hardware profile; and what schedulers know of latencies."""
